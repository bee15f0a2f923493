#include "strategies/parameter_server/client.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "proto/parameter_server.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/parameter_server/direct_link.h"
#include "strategies/parameter_server/frame_socket.h"
#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/local_link.h"
#include "strategies/parameter_server/spec_message.h"
#include "strategies/parameter_server/tensor_payload.h"
#include "strategies/parameter_server/wire.h"

namespace cohort {
namespace {

namespace pb = parameter_server::proto;

using parameter_server::Link;
using parameter_server::Piece;
using parameter_server::piece_of;
using parameter_server::Targets;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// The server's own deadline comes first: its error says what was waited for.
constexpr milliseconds kGrace(300);
constexpr milliseconds kConnectTime(2000);        // for one attempt, before its error is looked at
constexpr std::chrono::seconds kBetweenLines(5);  // that say who is waited for
// For an answer without which nothing is wrong.
constexpr milliseconds kFarewell(1000);

// How long the server of a call has been away.
class Absence {
 public:
  // An attempt has failed, before the server was reached or after. The seconds that it has been
  // away, where it is time to say so.
  std::optional<int64_t> line_due(bool reached) {
    const auto now = Clock::now();
    if (std::exchange(is_first_, false) && reached) since_ = now;
    const auto away = now - since_;
    if (away < next_line_) return {};
    next_line_ = away + kBetweenLines;
    return std::chrono::floor<std::chrono::seconds>(away).count();
  }

 private:
  bool is_first_ = true;
  Clock::time_point since_ = Clock::now();
  Clock::duration next_line_ = kBetweenLines;
};

Piece piece_of(const std::vector<int64_t>& numbers) {
  auto copy = std::make_shared<const std::vector<int64_t>>(numbers);
  const auto* data = reinterpret_cast<const char*>(copy->data());
  return {std::move(copy), data, numbers.size() * sizeof(int64_t)};
}

Piece piece_of(const std::shared_ptr<Buffer>& buffer) {
  return {buffer, static_cast<const char*>(buffer->data), buffer->bytes};
}

void write_pull(const ShardPull& pull, pb::Pull* out) {
  out->set_shard(pull.shard);
  out->set_epoch(pull.at_hand.epoch);
  out->set_version(pull.at_hand.version);
  out->set_at_least(pull.at_least);
  out->set_rows(pull.rows ? static_cast<int64_t>(pull.rows->size()) : -1);
  out->set_part(pull.part);
}

// A reply that is one header.
pb::Reply receive_reply(Link& link, Clock::time_point deadline) {
  pb::Reply reply;
  link.receive({.begin =
                    [&](const std::string& header, size_t) {
                      if (!reply.ParseFromString(header))
                        fail(Code::kDataLoss, "a reply cannot be read");
                    },
                .take = [](const char*, size_t) {}},
               deadline + kGrace);
  return reply;
}

void require_value(const char* what, const std::string& shard, const Tensor& tensor,
                   const std::optional<std::vector<int64_t>>& rows) {
  if (!tensor.defined()) invalid("the ", what, " shard \"", shard, "\" has no memory");
  if (rows &&
      (tensor.shape().rank() == 0 || tensor.shape()[0] != static_cast<int64_t>(rows->size())))
    invalid("the ", what, " shard \"", shard, "\" is ", tensor.spec(), " for ", rows->size(),
            " rows");
}

}  // namespace

struct ParameterClient::Channel {
  coordination::Security security;
  std::shared_ptr<grpc::Channel> channel;  // made when there is a need, and the name is known
};

ParameterClient::ParameterClient(const Address& server, ParameterClientOptions options,
                                 const Environment& environment)
    : server_(server),
      options_(std::move(options)),
      channel_(new Channel{.security = {options_.tls, options_.allow_plaintext, environment},
                           .channel = {}}),
      compressor_(options_.compression, options_.task),
      may_upgrade_(options_.transport != Transport::kGrpc) {
  coordination::keep_grpc();
  if (options_.task.empty())
    invalid("a client of a parameter server needs the name of its task, such as worker:0");
  if (options_.patience.count() <= 0)
    invalid("the patience with a parameter server must be more than 0, got ",
            options_.patience.count(), " ms");
  if (options_.job_id.empty()) options_.job_id = environment("COHORT_JOB_ID").value_or("");
  if (options_.incarnation == 0) options_.incarnation = coordination::random_incarnation();
  if (!options_.notice)
    options_.notice = [](const std::string& line) { print_notice(line + "\n"); };
}

ParameterClient::~ParameterClient() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (heart_.joinable()) heart_.join();
}

ParameterClient::Time ParameterClient::deadline_after(std::optional<milliseconds> timeout) const {
  return Clock::now() + timeout.value_or(options_.timeout);
}

void ParameterClient::mark_pushes(std::optional<Source> source) {
  const std::lock_guard lock(push_mutex_);
  source_ = std::move(source);
}

void ParameterClient::cancel() {
  const std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (Link* link : busy_) link->cancel();
  wake_.notify_all();
}

void ParameterClient::resume() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

std::unique_ptr<Link> ParameterClient::take_link(Time deadline) {
  std::unique_ptr<Link> link;
  bool is_new = false;
  const auto open = [&](Link::Unconnected unconnected, Time until) {
    for (std::shared_ptr<grpc::Channel> channel;;) {
      {
        const std::lock_guard lock(mutex_);
        if (cancelled_) fail(Code::kCancelled, "the client was cancelled");
        if (link) std::erase(busy_, link.get());
        if (!idle_.empty()) {
          link = std::move(idle_.back());
          is_new = false;
          idle_.pop_back();
          busy_.push_back(link.get());
          return true;
        }
        if (!channel_->channel) channel_->channel = std::move(channel);
        if (channel_->channel) {
          link = std::make_unique<Link>(channel_->channel, unconnected);
          busy_.push_back(link.get());
          is_new = true;
          break;
        }
      }
      // Looks up the server's name, for which nobody else shall wait.
      channel = parameter_server::open_channel(server_, channel_->security, options_.patience);
    }
    return link->connect(until);
  };
  try {
    if (!open(Link::Unconnected::kWait, std::min(deadline, Clock::now() + kConnectTime)) &&
        // Says why there is no connection.
        !open(Link::Unconnected::kFail, Clock::now() + kGrace))
      fail(Code::kUnavailable, "it cannot be reached");
    if (is_new) upgrade(link, deadline);
    return link;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    std::erase(busy_, link.get());
    throw;
  }
}

void ParameterClient::upgrade(std::unique_ptr<Link>& link, Time deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!may_upgrade_) return;
  }
  pb::Request request;
  introduce(request, deadline);
  request.mutable_upgrade();
  if (options_.transport == Transport::kSharedMemory)
    request.mutable_upgrade()->set_host(host_identity());
  link->send({.header = request.SerializeAsString(), .payload = {}}, deadline + kGrace);
  const pb::Upgraded offer = receive_reply(*link, deadline).upgraded();
  const auto link_locally = [&] {
    return parameter_server::link_locally(
        {.socket = offer.socket(),
         .word = offer.word(),
         .server = {.pid = offer.pid(), .start_time = offer.start_time()}},
        options_.patience);
  };
  const auto link_directly = [&] {
    return parameter_server::link_directly(server_, channel_->security, offer.direct_word(),
                                           options_.patience);
  };
  const bool replaced = (!offer.socket().empty() && replace(link, link_locally, deadline)) ||
                        (!offer.direct_word().empty() && replace(link, link_directly, deadline));
  const std::lock_guard lock(mutex_);
  if (!replaced) {
    may_upgrade_ = false;
    return;
  }
  channel_->channel = nullptr;  // nobody uses it, and it would be pinged all the time
  if (!heart_.joinable()) heart_ = std::thread([this] { beat_regularly(); });
}

bool ParameterClient::replace(std::unique_ptr<Link>& link,
                              const std::function<std::unique_ptr<Link>()>& open, Time deadline) {
  std::unique_ptr<Link> other;
  const auto exchange = [&] {
    const std::lock_guard lock(mutex_);
    if (cancelled_) fail(Code::kCancelled, "the client was cancelled");
    std::replace(busy_.begin(), busy_.end(), link.get(), other.get());
    link.swap(other);
  };
  try {
    other = open();
    exchange();
    link->connect(std::min(deadline, Clock::now() + kConnectTime));
    return true;
  } catch (const Error& error) {
    if (error.code() == Code::kCancelled) throw;
    if (other) exchange();
    return false;
  }
}

void ParameterClient::beat_regularly() {
  const auto has_ended = [](const std::unique_ptr<Link>& link) { return !link->beat(); };
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, parameter_server::FrameSocket::kBeat, [this] { return ending_; }))
    std::erase_if(idle_, has_ended);
}

void ParameterClient::give_back(std::unique_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  std::erase(busy_, link.get());
  idle_.push_back(std::move(link));
}

std::string ParameterClient::described_server() const {
  const std::string address = server_.text();
  return str("parameter server ",
             options_.server.empty() ? address : str(options_.server, " at ", address));
}

Error ParameterClient::named(const Error& error) const {
  const std::string server = options_.server.empty() ? server_.text() : options_.server;
  return Error(error.code(), str(described_server(), ": ", error.message()),
               error.peer().empty() ? server : error.peer());
}

void ParameterClient::introduce(pb::Request& request, Time deadline, milliseconds wait) const {
  cohort::proto::Caller& caller = *request.mutable_caller();
  caller.set_protocol(parameter_server::kProtocolVersion);
  caller.set_job_id(options_.job_id);
  caller.set_task(options_.task);
  caller.set_incarnation(options_.incarnation);
  const auto left =
      std::min(std::chrono::duration_cast<milliseconds>(deadline - Clock::now()), wait);
  request.set_timeout_ms(static_cast<uint64_t>(std::max<int64_t>(left.count(), 0)));
}

template <typename F>
void ParameterClient::call(pb::Request& request, const Payload& payload, Time deadline,
                           const F& receive, milliseconds wait) {
  milliseconds pause = parameter_server::kFirstPause;
  for (Absence absence;;) {
    introduce(request, deadline, wait);
    std::unique_ptr<Link> link;
    try {
      link = take_link(deadline);
      link->send({.header = request.SerializeAsString(), .payload = payload}, deadline + kGrace);
      receive(*link);
      return give_back(std::move(link));
    } catch (const Error& error) {
      std::unique_lock lock(mutex_);
      std::erase(busy_, link.get());
      const bool again = error.code() == Code::kUnavailable && !cancelled_;
      // The others have ended as well.
      if (error.code() == Code::kUnavailable) {
        idle_.clear();
        may_upgrade_ = options_.transport != Transport::kGrpc;
      }
      if (again && interrupted())
        throw named(
            Error(Code::kCancelled,
                  str("it is away, and this process has been asked to stop: ", error.message())));
      if (!again || Clock::now() + pause >= deadline) throw named(error);
      if (const auto seconds = absence.line_due(link != nullptr)) {
        lock.unlock();
        options_.notice(str("cohort: ", options_.task, ": waiting for ", described_server(),
                            " since ", *seconds, " s: ", error.message()));
        lock.lock();
      }
      wake_.wait_for(lock, pause, [this] { return cancelled_; });
      pause = std::min(2 * pause, parameter_server::kLongestPause);
    } catch (...) {  // there is no memory, and soon no link
      const std::lock_guard lock(mutex_);
      std::erase(busy_, link.get());
      throw;
    }
  }
}

pb::Reply ParameterClient::ask(pb::Request& request, const Payload& payload,
                               std::optional<milliseconds> timeout) {
  pb::Reply reply;
  const Time deadline = deadline_after(timeout);
  call(request, payload, deadline, [&](Link& link) { reply = receive_reply(link, deadline); });
  return reply;
}

bool ParameterClient::create(const ShardSpec& spec, const std::function<Tensor()>& initial) {
  pb::Request request;
  parameter_server::write_shard_spec(spec, request.mutable_create());
  pb::Reply reply = ask(request);
  if (!reply.created().needs_value()) return !reply.created().existed();
  const Tensor value = initial();
  if (!value.defined() || !(value.spec() == spec.spec()))
    invalid("shard \"", spec.name, "\" is ", spec.spec(), ", its initial value is ", value.spec());
  request.mutable_create()->set_payload_bytes(value.bytes());
  reply = ask(request, {piece_of(value)});
  return !reply.created().existed();
}

ShardVersion ParameterClient::version_at_hand(const std::string& shard) {
  const std::lock_guard lock(mutex_);
  const auto found = pulled_.find(shard);
  return found == pulled_.end() ? ShardVersion{} : found->second;
}

UpdateResult ParameterClient::update(std::span<const ShardPush> pushes,
                                     std::span<const ShardPull> pulls,
                                     std::optional<milliseconds> timeout, milliseconds wait) {
  UpdateResult result;
  if (pushes.empty() && pulls.empty()) return result;
  const Time deadline = deadline_after(timeout);
  std::unique_lock<std::mutex> pushing;
  if (!pushes.empty()) pushing = std::unique_lock(push_mutex_);
  pb::Request request;
  Payload payload;
  for (const ShardPush& push : pushes) {
    require_value("gradient for", push.shard, push.gradient, push.rows);
    Sequence& sequence = sequences_[push.shard];
    pb::Push& out = *request.mutable_update()->add_pushes();
    const ShardVersion from =
        push.computed_at.version > 0 ? push.computed_at : version_at_hand(push.shard);
    out.set_shard(push.shard);
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
    out.set_rows(push.rows ? static_cast<int64_t>(push.rows->size()) : -1);
    if (push.rows) payload.push_back(piece_of(*push.rows));
    const bool compressed = !push.rows && !push.exact && is_floating(push.gradient.dtype()) &&
                            compressor_.kind() != Compression::kNone;
    payload.push_back(compressed ? piece_of(compressor_.compress(push.shard, push.gradient))
                                 : piece_of(push.gradient));
    out.set_encoding(compressed ? static_cast<int>(compressor_.kind()) : 0);
    out.set_payload_bytes(payload.back().bytes +
                          (push.rows ? push.rows->size() * sizeof(int64_t) : 0));
  }
  for (const ShardPull& pull : pulls) {
    require_value("target of", pull.shard, pull.target, pull.rows);
    write_pull(pull, request.mutable_update()->add_pulls());
    if (pull.rows) payload.push_back(piece_of(*pull.rows));
  }
  std::erase_if(payload, [](const Piece& piece) { return piece.bytes == 0; });
  std::vector<size_t> changed;
  const auto receive = [&](Link& link) {
    result = {};
    changed = receive_update(link, deadline, pulls, pushes.size(), result);
  };
  call(request, payload, deadline, receive, wait);
  if (!changed.empty()) pull_again(pulls, changed, deadline, result);
  for (size_t i = 0; i < pushes.size(); ++i) {
    Sequence& sequence = sequences_[pushes[i].shard];
    if (result.pushed[i].lost > 0) sequence.reported = sequence.acknowledged;
    sequence.acknowledged = sequence.last;
  }
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < pulls.size(); ++i)
    if (pulls[i].part == 0) pulled_[pulls[i].shard] = result.pulled[i].version;
  return result;
}

namespace {

void read_pushes(const pb::Updated& updated, UpdateResult& result) {
  for (const pb::Pushed& pushed : updated.pushed()) {
    const int outcome = std::clamp(pushed.outcome(), 0, static_cast<int>(PushOutcome::kLate));
    result.pushed.push_back({.outcome = static_cast<PushOutcome>(outcome),
                             .version = pushed.version(),
                             .staleness = pushed.staleness(),
                             .lost = pushed.lost()});
  }
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

}  // namespace

std::vector<size_t> ParameterClient::receive_update(Link& link, Time deadline,
                                                    std::span<const ShardPull> pulls,
                                                    size_t num_pushes, UpdateResult& result) {
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
                 deadline + kGrace);
  } while (!targets.done() || result.pulled.size() < pulls.size());
  if (result.pushed.size() != num_pushes) fail(Code::kDataLoss, "a reply has not all pushes");
  return changed;
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
    write_pull(some.back(), out);
    out->set_copied(true);
  }
  UpdateResult again;
  call(request, {}, deadline, [&](Link& link) {
    again = {};
    receive_update(link, deadline, some, 0, again);
  });
  for (size_t i = 0; i < changed.size(); ++i) result.pulled[changed[i]] = again.pulled[i];
}

void ParameterClient::assign(const std::string& shard, const Tensor& value, int part) {
  require_value("value of", shard, value, std::nullopt);
  pb::Request request;
  request.mutable_assign()->set_shard(shard);
  request.mutable_assign()->set_part(part);
  request.mutable_assign()->set_payload_bytes(value.bytes());
  const std::lock_guard writing(write_mutex_);
  request.mutable_assign()->set_sequence(++writes_);
  Payload payload;
  if (value.bytes() > 0) payload.push_back(piece_of(value));
  ask(request, payload);
}

std::vector<int64_t> ParameterClient::rows_in_use(const std::string& shard) {
  std::vector<int64_t> rows;
  for (;;) {
    pb::Request request;
    request.mutable_list_rows()->set_shard(shard);
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
  require_value("value of", shard, values, rows);
  pb::Request request;
  pb::AssignRows& assign = *request.mutable_assign_rows();
  assign.set_shard(shard);
  assign.set_part(part);
  assign.set_rows(static_cast<int64_t>(rows.size()));
  assign.set_reset(reset);
  assign.set_payload_bytes(rows.size() * sizeof(int64_t) + values.bytes());
  const std::lock_guard writing(write_mutex_);
  assign.set_sequence(++writes_);
  Payload payload = {piece_of(rows), piece_of(values)};
  std::erase_if(payload, [](const Piece& piece) { return piece.bytes == 0; });
  ask(request, payload);
}

int64_t ParameterClient::complete_step(int64_t steps, std::optional<milliseconds> timeout) {
  pb::Request request;
  request.mutable_clock()->set_completed(steps);
  return ask(request, {}, timeout).clocked().slowest();
}

void ParameterClient::leave(std::optional<milliseconds> timeout) {
  pb::Request request;
  request.mutable_clock()->set_leave(true);
  request.mutable_clock()->set_trainings(++trainings_);
  ask(request, {}, timeout);
}

void ParameterClient::snapshot(const std::string& folder) {
  pb::Request request;
  request.mutable_snapshot()->set_folder(folder);
  ask(request);
}

void ParameterClient::say_done() {
  std::unique_ptr<Link> link;
  {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return;
    link = std::move(idle_.back());
    idle_.pop_back();
  }
  const Time deadline = Clock::now() + kFarewell;
  pb::Request request;
  introduce(request, deadline);
  request.mutable_done();
  try {
    link->send({.header = request.SerializeAsString(), .payload = {}}, deadline);
    receive_reply(*link, deadline);
  } catch (const Error&) {  // the server has gone, too
  }
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
