#include "strategies/parameter_server/client.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/time_limits.h"
#include "proto/parameter_server.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/parameter_server/client_calls.h"
#include "strategies/parameter_server/spec_message.h"
#include "strategies/parameter_server/tensor_payload.h"
#include "strategies/parameter_server/wire.h"

namespace cohort {
namespace {

namespace pb = parameter_server::proto;

using parameter_server::ClientCalls;
using parameter_server::Link;
using parameter_server::Piece;
using parameter_server::piece_of;
using parameter_server::Targets;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// For an answer without which nothing is wrong.
constexpr milliseconds kFarewell(1000);

Piece piece_of(const std::vector<int64_t>& numbers) {
  auto copy = std::make_shared<const std::vector<int64_t>>(numbers);
  const auto* data = reinterpret_cast<const char*>(copy->data());
  return {std::move(copy), data, numbers.size() * sizeof(int64_t)};
}

Piece piece_of(const std::shared_ptr<Buffer>& buffer) {
  return {buffer, static_cast<const char*>(buffer->data), buffer->bytes};
}

// Of a shard of this birth; 0: whichever there is.
void write_pull(const ShardPull& pull, uint64_t birth, pb::Pull* out) {
  out->set_shard(pull.shard);
  out->set_birth(birth);
  out->set_epoch(pull.at_hand.epoch);
  out->set_version(pull.at_hand.version);
  out->set_at_least(pull.at_least);
  out->set_rows(pull.rows ? static_cast<int64_t>(pull.rows->size()) : -1);
  out->set_part(pull.part);
  parameter_server::write_tensor_spec(pull.target.spec(), out);
}

void require_value(const char* what, const std::string& shard, const Tensor& tensor,
                   const std::optional<std::vector<int64_t>>& rows) {
  if (!tensor.defined()) invalid("the ", what, " shard \"", shard, "\" has no memory");
  if (rows &&
      (tensor.shape().rank() == 0 || tensor.shape()[0] != static_cast<int64_t>(rows->size())))
    invalid("the ", what, " shard \"", shard, "\" is ", tensor.spec(), " for ", rows->size(),
            " rows");
}

// Appends the births of the shards that were pushed to, then of those pulled; 0: not said.
void read_births(const pb::Updated& updated, std::vector<uint64_t>& births) {
  for (const pb::Pushed& pushed : updated.pushed()) births.push_back(pushed.birth());
  for (const pb::Pulled& pulled : updated.pulled()) births.push_back(pulled.birth());
}

// Throws where some are refused, when all outcomes are there.
void read_pushes(const pb::Updated& updated, UpdateResult& result) {
  for (const pb::Pushed& pushed : updated.pushed()) {
    const int outcome = std::clamp(pushed.outcome(), 0, static_cast<int>(PushOutcome::kRefused));
    result.pushed.push_back({.outcome = static_cast<PushOutcome>(outcome),
                             .version = pushed.version(),
                             .staleness = pushed.staleness(),
                             .lost = pushed.lost()});
  }
  if (updated.has_fault()) throw coordination::read_fault(updated.fault());
}

// Appends to `filled` which pulls the values that follow are for.
void read_pulls(const pb::Updated& updated, std::span<const ShardPull> pulls, UpdateResult& result,
                Targets& targets, std::vector<size_t>& filled) {
  for (const pb::Pulled& pulled : updated.pulled()) {
    if (result.pulled.size() == pulls.size()) fail(Code::kDataLoss, "a reply has too many values");
    const ShardPull& pull = pulls[result.pulled.size()];
    result.pulled.push_back(
        {.version = {updated.epoch(), pulled.version()}, .was_current = pulled.current()});
    if (pulled.current()) continue;
    if (pulled.payload_bytes() != pull.target.bytes())
      invalid("shard \"", pull.shard, "\" has ", pulled.payload_bytes(),
              " bytes, the memory for it is ", pull.target.spec());
    targets.add(pull.target);
    if (pull.target.bytes() > 0) filled.push_back(result.pulled.size() - 1);
  }
}

// Returns which values changed while they were copied. `births` are by pushes, then by pulls.
std::vector<size_t> receive_update(Link& link, Link::Time until, std::span<const ShardPull> pulls,
                                   size_t num_pushes, UpdateResult& result,
                                   std::vector<uint64_t>& births) {
  result = {};
  births = {};
  size_t bytes = 0;
  for (const ShardPull& pull : pulls) bytes += pull.target.bytes();
  Targets targets(bytes);
  std::vector<size_t> filled, changed;
  do {
    link.receive({.begin =
                      [&](const std::string& header, size_t) {
                        if (header.empty()) return;
                        pb::Reply reply;
                        if (!reply.ParseFromString(header) || !reply.has_updated())
                          fail(Code::kDataLoss, "a reply cannot be read");
                        read_births(reply.updated(), births);
                        read_pushes(reply.updated(), result);
                        read_pulls(reply.updated(), pulls, result, targets, filled);
                      },
                  .take = [&](const char* data, size_t bytes) { targets.take(data, bytes); },
                  .room = [&] { return targets.room(); },
                  .changed =
                      [&] {
                        if (targets.count() == 0)
                          fail(Code::kDataLoss, "a part of a value has changed");
                        changed.push_back(filled[targets.count() - 1]);
                      }},
                 until);
  } while (!targets.done() || result.pulled.size() < pulls.size());
  if (result.pushed.size() != num_pushes) fail(Code::kDataLoss, "a reply has not all pushes");
  return changed;
}

// Whether a call that has failed like this may have had its effect: else it has been refused, or
// was never sent.
bool may_have_been_made(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
         code == Code::kCancelled || code == Code::kDataLoss;
}

ParameterClientOptions completed(ParameterClientOptions options, const Environment& environment) {
  if (options.task.empty())
    invalid("a client of a parameter server needs the name of its task, such as worker:0");
  const std::pair<const char*, milliseconds> times[] = {{"patience", options.patience},
                                                        {"timeout", options.timeout}};
  for (const auto& [option, time] : times)
    if (time.count() <= 0)
      invalid("the ", option, " with a parameter server must be more than 0 ms, got ", time.count(),
              " ms");
  options.patience = clamped(options.patience);
  options.timeout = clamped(options.timeout);
  if (options.job_id.empty()) options.job_id = environment("COHORT_JOB_ID").value_or("");
  if (options.incarnation == 0) options.incarnation = coordination::random_incarnation();
  if (!options.notice) options.notice = [](const std::string& line) { print_notice(line + "\n"); };
  return options;
}

}  // namespace

ParameterClient::ParameterClient(const Address& server, ParameterClientOptions options,
                                 const Environment& environment)
    : options_(completed(std::move(options), environment)),
      calls_(std::make_unique<ClientCalls>(server, options_, environment)),
      compressor_(options_.compression, options_.task) {}

ParameterClient::~ParameterClient() = default;

ParameterClient::Time ParameterClient::deadline_after(std::optional<milliseconds> timeout) const {
  return Clock::now() + clamped(timeout.value_or(options_.timeout));
}

void ParameterClient::mark_pushes(std::optional<Source> source) {
  const std::lock_guard lock(push_mutex_);
  source_ = std::move(source);
}

void ParameterClient::cancel() { calls_->cancel(); }

void ParameterClient::resume() { calls_->resume(); }

pb::Reply ParameterClient::ask(pb::Request& request, const Payload& payload,
                               std::optional<milliseconds> timeout) {
  return calls_->ask(request, payload, deadline_after(timeout));
}

bool ParameterClient::create(const ShardSpec& spec, const std::function<Tensor()>& initial) {
  pb::Request request;
  parameter_server::write_shard_spec(spec, request.mutable_create());
  pb::Reply reply = ask(request);
  if (reply.created().needs_value()) {
    const Tensor value = initial();
    if (!value.defined())
      invalid("shard \"", spec.name, "\" is ", spec.spec(),
              ", its initial value is a tensor that has no value");
    if (!(value.spec() == spec.spec()))
      invalid("shard \"", spec.name, "\" is ", spec.spec(), ", its initial value is ",
              value.spec());
    request.mutable_create()->set_payload_bytes(value.bytes());
    // Again where another client, whose value was to count, has gone before all of it had come.
    while (reply.created().needs_value()) reply = ask(request, {piece_of(value)});
  }
  learn(spec.name, reply.created().birth());
  return !reply.created().existed();
}

ParameterClient::Known ParameterClient::known(const std::string& shard) {
  const std::lock_guard lock(known_mutex_);
  const auto found = known_.find(shard);
  return found == known_.end() ? Known{} : found->second;
}

void ParameterClient::learn(const std::string& shard, uint64_t birth) {
  if (birth == 0) return;
  const std::lock_guard lock(known_mutex_);
  known_[shard].birth = birth;
}

bool ParameterClient::is_compressed(const ShardPush& push) const {
  // What weighs nothing would take along what others have left, to be lost.
  return !push.rows && !push.exact && push.weight > 0 && is_floating(push.gradient.dtype()) &&
         compressor_.kind() != Compression::kNone;
}

void ParameterClient::write_push(const ShardPush& push, pb::Push& out, Payload& payload) {
  Sequence& sequence = sequences_[push.shard];
  const Known shard = known(push.shard);
  const ShardVersion from = push.computed_at.version > 0 ? push.computed_at : shard.pulled;
  out.set_shard(push.shard);
  out.set_birth(shard.birth);
  out.set_sequence(++sequence.last);
  out.set_acknowledged(sequence.acknowledged);
  out.set_reported(sequence.reported);
  if (source_) {
    out.set_source(source_->name);
    out.set_source_incarnation(source_->incarnation);
    out.set_source_sequence(source_->sequence);
  }
  out.set_epoch(from.epoch);
  out.set_version(from.version);
  out.set_learning_rate(push.learning_rate);
  out.set_step(push.step);
  if (push.weight != 1) out.set_weight(push.weight);
  parameter_server::write_tensor_spec(push.gradient.spec(), &out);
  out.set_rows(push.rows ? static_cast<int64_t>(push.rows->size()) : -1);
  if (push.rows) payload.push_back(piece_of(*push.rows));
  const bool compressed = is_compressed(push);
  payload.push_back(compressed ? piece_of(compressor_.compress(push.shard, push.gradient))
                               : piece_of(push.gradient));
  out.set_encoding(compressed ? static_cast<int>(compressor_.kind()) : 0);
  out.set_payload_bytes(payload.back().bytes +
                        (push.rows ? push.rows->size() * sizeof(int64_t) : 0));
}

void ParameterClient::require_values(std::span<const ShardPush> pushes,
                                     std::span<const ShardPull> pulls) const {
  for (const ShardPush& push : pushes) {
    require_value("gradient for", push.shard, push.gradient, push.rows);
    if (is_compressed(push)) GradientCompressor::require_finite(push.shard, push.gradient);
  }
  for (const ShardPull& pull : pulls)
    require_value("target of", pull.shard, pull.target, pull.rows);
}

void ParameterClient::write_update(std::span<const ShardPush> pushes,
                                   std::span<const ShardPull> pulls, pb::Update& out,
                                   Payload& payload, std::map<std::string, Tensor>& kept) {
  for (const ShardPush& push : pushes) {
    if (is_compressed(push)) kept.try_emplace(push.shard, compressor_.residual(push.shard));
    write_push(push, *out.add_pushes(), payload);
  }
  for (const ShardPull& pull : pulls) {
    write_pull(pull, known(pull.shard).birth, out.add_pulls());
    if (pull.rows) payload.push_back(piece_of(*pull.rows));
  }
  std::erase_if(payload, [](const Piece& piece) { return piece.bytes == 0; });
}

UpdateResult ParameterClient::update(std::span<const ShardPush> pushes,
                                     std::span<const ShardPull> pulls,
                                     std::optional<milliseconds> timeout, milliseconds wait) {
  UpdateResult result;
  if (pushes.empty() && pulls.empty()) return result;
  const Time deadline = deadline_after(timeout);
  std::unique_lock<std::mutex> pushing;
  if (!pushes.empty()) pushing = std::unique_lock(push_mutex_);
  require_values(pushes, pulls);  // all of it, before the compressor keeps anything
  pb::Request request;
  Payload payload;
  std::vector<size_t> changed;
  std::vector<uint64_t> births;
  const auto receive = [&](Link& link, Time until) {
    changed = receive_update(link, until, pulls, pushes.size(), result, births);
  };
  std::map<std::string, Tensor> kept;  // by the compressor, before these
  const auto put_back = [&](const ShardPush& push) {
    if (const auto of = kept.find(push.shard); of != kept.end())
      compressor_.put_back(of->first, of->second);
  };
  const auto is = [&](size_t push, PushOutcome outcome) {
    return push < result.pushed.size() && result.pushed[push].outcome == outcome;
  };
  try {
    write_update(pushes, pulls, *request.mutable_update(), payload, kept);
    calls_->call(request, payload, deadline, receive, wait);
  } catch (const Error& error) {
    const bool is_undone = result.pushed.empty() && !may_have_been_made(error.code());
    for (size_t i = 0; i < pushes.size(); ++i)
      if (is_undone || is(i, PushOutcome::kRefused)) put_back(pushes[i]);
    throw;
  }
  if (!changed.empty()) pull_again(pulls, changed, deadline, result);
  for (size_t i = 0; i < pushes.size(); ++i) {
    Sequence& sequence = sequences_[pushes[i].shard];
    if (result.pushed[i].lost > 0) sequence.reported = sequence.acknowledged;
    sequence.acknowledged = sequence.last;
    if (is(i, PushOutcome::kLate)) put_back(pushes[i]);
    learn(pushes[i].shard, births[i]);
  }
  const std::lock_guard lock(known_mutex_);
  for (size_t i = 0; i < pulls.size(); ++i) {
    Known& shard = known_[pulls[i].shard];
    if (const uint64_t birth = births[pushes.size() + i]; birth != 0) shard.birth = birth;
    if (pulls[i].part == 0) shard.pulled = result.pulled[i].version;
  }
  return result;
}

void ParameterClient::pull_again(std::span<const ShardPull> pulls,
                                 const std::vector<size_t>& changed, Time deadline,
                                 UpdateResult& result) {
  std::vector<ShardPull> some;
  pb::Request request;
  for (const size_t i : changed) {
    some.push_back(pulls[i]);
    some.back().at_hand = {};
    pb::Pull* const out = request.mutable_update()->add_pulls();
    write_pull(some.back(), known(some.back().shard).birth, out);
    out->set_copied(true);
  }
  UpdateResult again;
  std::vector<uint64_t> births;
  calls_->call(request, {}, deadline, [&](Link& link, Time until) {
    receive_update(link, until, some, 0, again, births);
  });
  for (size_t i = 0; i < changed.size(); ++i) result.pulled[changed[i]] = again.pulled[i];
}

void ParameterClient::assign(const std::string& shard, const Tensor& value, int part) {
  require_value("value of", shard, value, std::nullopt);
  pb::Request request;
  request.mutable_assign()->set_shard(shard);
  request.mutable_assign()->set_birth(known(shard).birth);
  request.mutable_assign()->set_part(part);
  request.mutable_assign()->set_payload_bytes(value.bytes());
  parameter_server::write_tensor_spec(value.spec(), request.mutable_assign());
  const std::lock_guard writing(write_mutex_);
  request.mutable_assign()->set_sequence(++writes_);
  Payload payload;
  if (value.bytes() > 0) payload.push_back(piece_of(value));
  learn(shard, ask(request, payload).created().birth());
}

std::vector<int64_t> ParameterClient::rows_in_use(const std::string& shard) {
  std::vector<int64_t> rows;
  for (;;) {
    pb::Request request;
    request.mutable_list_rows()->set_shard(shard);
    request.mutable_list_rows()->set_birth(known(shard).birth);
    request.mutable_list_rows()->set_after(rows.empty() ? -1 : rows.back());
    request.mutable_list_rows()->set_most(parameter_server::kMaxListedRows);
    const pb::Reply reply = ask(request);
    if (reply.listed_rows().rows().empty()) return rows;
    for (const int64_t row : reply.listed_rows().rows()) {
      if (!rows.empty() && row <= rows.back()) fail(Code::kDataLoss, "rows are not in order");
      rows.push_back(row);
    }
  }
}

void ParameterClient::assign_rows(const std::string& shard, const std::vector<int64_t>& rows,
                                  const Tensor& values, int part, bool reset) {
  pb::Request request;
  request.mutable_assign_rows()->set_part(part);
  request.mutable_assign_rows()->set_reset(reset);
  write_rows(request, shard, rows, values);
}

void ParameterClient::add_missing_rows(const std::string& shard, const std::vector<int64_t>& rows,
                                       const Tensor& values) {
  pb::Request request;
  request.mutable_assign_rows()->set_only_missing(true);
  write_rows(request, shard, rows, values);
}

void ParameterClient::write_rows(pb::Request& request, const std::string& shard,
                                 const std::vector<int64_t>& rows, const Tensor& values) {
  require_value("value of", shard, values, rows);
  pb::AssignRows& assign = *request.mutable_assign_rows();
  assign.set_shard(shard);
  assign.set_birth(known(shard).birth);
  assign.set_rows(static_cast<int64_t>(rows.size()));
  assign.set_payload_bytes(rows.size() * sizeof(int64_t) + values.bytes());
  parameter_server::write_tensor_spec(values.spec(), &assign);
  const std::lock_guard writing(write_mutex_);
  assign.set_sequence(++writes_);
  Payload payload = {piece_of(rows), piece_of(values)};
  std::erase_if(payload, [](const Piece& piece) { return piece.bytes == 0; });
  learn(shard, ask(request, payload).created().birth());
}

int64_t ParameterClient::complete_step(int64_t steps, std::optional<milliseconds> timeout) {
  pb::Request request;
  request.mutable_clock()->set_completed(steps);
  request.mutable_clock()->set_sequence(++clocks_);
  return ask(request, {}, timeout).clocked().slowest();
}

void ParameterClient::leave(std::optional<milliseconds> timeout) {
  pb::Request request;
  request.mutable_clock()->set_leave(true);
  request.mutable_clock()->set_trainings(++trainings_);
  request.mutable_clock()->set_sequence(++clocks_);
  ask(request, {}, timeout);
}

void ParameterClient::snapshot(const std::string& folder) {
  pb::Request request;
  request.mutable_snapshot()->set_folder(folder);
  ask(request);
}

void ParameterClient::say_done() {
  pb::Request request;
  request.mutable_done();
  calls_->say(request, Clock::now() + kFarewell);
}

int64_t ParameterClient::restore(const std::string& folder) {
  pb::Request request;
  request.mutable_restore()->set_folder(folder);
  return ask(request).restored().shards();
}

void ParameterClient::shut_down() {
  pb::Request request;
  request.mutable_shutdown();
  ask(request);
}

ServerStatistics ParameterClient::statistics() {
  pb::Request request;
  request.mutable_stats();
  const pb::Reply reply = ask(request);
  const pb::Stats& in = reply.stats();
  ServerStatistics s{.epoch = in.epoch(),
                     .shards = in.shards(),
                     .rows = in.rows(),
                     .bytes = in.bytes(),
                     .pushes_applied = in.pushes_applied(),
                     .pushes_counted = in.pushes_counted(),
                     .pushes_repeated = in.pushes_repeated(),
                     .pushes_late = in.pushes_late(),
                     .pushes_lost = in.pushes_lost(),
                     .requests_refused = in.requests_refused(),
                     .snapshots_failed = in.snapshots_failed(),
                     .received_bytes = in.received_bytes(),
                     .sent_bytes = in.sent_bytes(),
                     .sessions = in.sessions(),
                     .sharing_sessions = in.sharing_sessions(),
                     .direct_sessions = in.direct_sessions()};
  for (int i = 0; i < std::min<int>(in.staleness_size(), static_cast<int>(s.staleness.size())); ++i)
    s.staleness[static_cast<size_t>(i)] = in.staleness(i);
  return s;
}

}  // namespace cohort
