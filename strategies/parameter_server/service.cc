#include "strategies/parameter_server/service.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "core/base/cores.h"
#include "core/base/error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/lane.h"
#include "strategies/parameter_server/message_parts.h"
#include "strategies/parameter_server/requests.h"
#include "strategies/parameter_server/same_consistency.h"
#include "strategies/parameter_server/same_shard.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

constexpr size_t kMaxTaskBytes = 256;
constexpr size_t kMaxCachedBytes = 256 << 20;
constexpr size_t kMaxShards = 1 << 20;
// So many times worker_grace after a restart, those who took part before are waited for.
constexpr int kGracesToReturn = 10;
// As Service::quiet_wait().
constexpr int kGracesToName = 5;

// A worker is slow when the others wait for it so much of their time: it takes twice as long.
constexpr double kSlowShare = 0.5;

int usual_threads(int wanted) {
  if (wanted > 0) return wanted;
  return std::max(2, available_cores());
}

std::unique_ptr<UpdateTeam> make_team(int threads) {
  return threads > 1 ? std::make_unique<UpdateTeam>(threads) : nullptr;
}

}  // namespace

Service::Service(const ParameterServerOptions& options, std::function<void()> shut_down)
    : options_(options),
      shut_down_(std::move(shut_down)),
      epoch_(coordination::random_incarnation()),
      buffers_(kMaxCachedBytes),
      memory_(options.max_bytes),
      team_(make_team(usual_threads(options.threads))),
      clocks_(options.consistency.max_staleness.value_or(std::numeric_limits<int64_t>::max()),
              options.consistency.num_workers, options.worker_grace),
      last_closed_(std::chrono::steady_clock::now()),
      lost_(options_, [this](const std::string& name) { return find(name); }),
      pool_(std::make_unique<TaskPool>(usual_threads(options.threads))),
      waiting_(std::make_unique<WaitingRoom>()) {
  prepare_parts(*proto::Request::descriptor());
}

Service::~Service() { pool_->stop(); }

void Service::opened() {
  const std::lock_guard lock(sessions_mutex_);
  ++sessions_;
}

void Service::closed(const Session& session) {
  const auto now = std::chrono::steady_clock::now();
  const bool has_gone =
      session.start && with_clocks([&](ClockTable& clocks) {
        return clocks.disconnected(session.start->task, session.start->incarnation, now);
      });
  if (has_gone && options_.consistency.max_staleness) look_for(session.start->task);
  waiting_->look();
  const std::lock_guard lock(sessions_mutex_);
  --sessions_;
  if (session.start) --known_sessions_[session.kind];
  last_closed_ = now;
  callers_end_.notify_all();
}

void Service::wait_for_callers(std::chrono::milliseconds limit) {
  std::unique_lock lock(sessions_mutex_);
  callers_end_.wait_for(lock, limit, [this] { return sessions_ == 0 || is_done(); });
}

void Service::end_work(Start& caller) {
  const std::lock_guard lock(sessions_mutex_);
  caller.done = true;
  callers_end_.notify_all();
}

std::optional<std::string> Service::is_orphaned() const {
  const bool claimed = roster_.anybody();
  const auto limit = claimed ? options_.orphaned_after : options_.unclaimed_after;
  const std::lock_guard lock(sessions_mutex_);
  // In the unit of the limit: in the clock's, the longest would be too long.
  const auto alone = std::chrono::floor<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - last_closed_);
  if (limit.count() == 0 || sessions_ > 0 || alone < limit) return std::nullopt;
  return str("parameter server: nobody has ", claimed ? "been connected" : "ever come", " for ",
             limit.count(), " ms; ending");
}

void Service::identify(const proto::Request& request, Session& session) {
  const cohort::proto::Caller& who = request.caller();
  if (who.protocol() != kProtocolVersion)
    fail(Code::kFailedPrecondition, "the caller speaks version ", who.protocol(),
         " of the protocol, this server version ", kProtocolVersion);
  if (who.job_id() != options_.job_id)
    fail(Code::kFailedPrecondition, "this server belongs to job \"", options_.job_id,
         "\", the caller to job \"", who.job_id().substr(0, kMaxTaskBytes), '"');
  if (who.task().empty() || who.task().size() > kMaxTaskBytes)
    invalid("the name of a task has 1 to ", kMaxTaskBytes, " bytes, got ", who.task().size());
  const std::shared_ptr<Start>& start = session.start;
  if (start && start->task == who.task() && start->incarnation == who.incarnation())
    return refuse_if_retired(*start);
  if (start) invalid("a call is of one task: it was ", start->task, ", now ", who.task());
  session.tasks.check(options_.job_id, who.task());
  // Who is refused has not come.
  if (request.has_consistency())
    require_same(options_.consistency, request.consistency(), who.task());
  enter(roster_.enter(who.task(), who.incarnation()), session);
}

void Service::enter(const std::shared_ptr<Start>& caller, Session& session) {
  session.start = caller;
  const auto now = std::chrono::steady_clock::now();
  with_clocks([&](ClockTable& clocks) {
    if (!caller->retired) clocks.connected(caller->task, caller->incarnation, now);
  });
  const std::lock_guard lock(sessions_mutex_);
  ++known_sessions_[session.kind];
}

std::shared_ptr<Start> Service::require_present(const std::string& source, uint64_t incarnation) {
  if (!is_lane_name(source))
    invalid("a push is said to be of \"", source.substr(0, kMaxTaskBytes),
            "\"; allowed: ", lane_name(0), " and the other lanes of the coordinator");
  return lanes_.enter(source, incarnation);
}

std::shared_ptr<Exchange> Service::open(std::string_view header,
                                        const std::shared_ptr<Caller>& caller, Session& session) {
  check_parts(header, *proto::Request::descriptor());
  proto::Request request;
  if (!request.ParseFromArray(header.data(), static_cast<int>(header.size())))
    invalid("the header of a request cannot be read");
  identify(request, session);
  return begin(*this, request, session.start, caller);
}

std::shared_ptr<Shard> Service::find(const std::string& name) const {
  const std::shared_lock lock(shards_mutex_);
  const auto found = shards_.find(name);
  return found == shards_.end() ? nullptr : found->second;
}

std::shared_ptr<Shard> Service::shard(const std::string& name, uint64_t birth) const {
  auto found = find(name);
  if (found == nullptr)
    fail(Code::kNotFound, "this server has no shard \"", name.substr(0, kMaxTaskBytes),
         "\": it has not been created, or the server has lost it: then a new strategy with new ",
         "variables makes it again, into which a checkpoint can be loaded");
  if (birth != 0 && birth != found->birth())
    fail(Code::kNotFound, "this server has a shard \"", name.substr(0, kMaxTaskBytes),
         "\", but not the one that this task has used: the server has lost it, and it has been ",
         "made anew since: a new strategy with new variables uses the new one, into which a ",
         "checkpoint can be loaded");
  return found;
}

std::vector<std::shared_ptr<Shard>> Service::shards() const {
  const std::shared_lock lock(shards_mutex_);
  std::vector<std::shared_ptr<Shard>> all;
  for (const auto& [name, shard] : shards_) all.push_back(shard);
  return all;
}

Shard::Environment Service::environment() {
  return {
      .epoch = epoch_,
      .consistency = options_.consistency,
      .awaited =
          [this](const ClockTable::HasCome& has_come) {
            const auto now = std::chrono::steady_clock::now();
            return with_clocks([&](ClockTable& clocks) { return clocks.awaited(has_come, now); });
          },
      .buffers = &buffers_,
      .values = &values_,
      .budget = &memory_,
      .team = team_.get(),
      .record = options_.log == ServerLog::kNone
                    ? std::function<void(const Change&)>()
                    : [this](const Change& change) { log_->add(change); }};
}

void Service::require_wanted(const Shard& present, const ShardSpec& wanted) const {
  require_same(present.spec(), wanted);
  require_same_update(present.spec(), wanted, options_.snapshot_folder);
}

size_t Service::memory_for(const std::string& shard) const {
  // In this order: who is making it does so until it is there.
  const size_t left = makers_.memory_left(shard, options_.max_bytes);
  return find(shard) != nullptr ? options_.max_bytes : left;
}

bool Service::create(const ShardSpec& spec, Tensor initial, uint64_t birth) {
  // All workers begin with the same shards: for a second one there need be no memory.
  const std::lock_guard creating(create_mutex_);
  if (const auto present = find(spec.name)) {
    require_wanted(*present, spec);
    return false;
  }
  spec.check(memory_left());
  auto shard = std::make_shared<Shard>(spec, std::move(initial), environment(), birth);
  const std::unique_lock lock(shards_mutex_);
  if (shards_.size() >= kMaxShards)
    fail(Code::kResourceExhausted, "a server holds ", kMaxShards, " shards at most");
  if (const auto present = shards_.find(spec.name); present != shards_.end()) {
    require_wanted(*present->second, spec);
    return false;
  }
  if (log_ != nullptr) log_->add(spec, spec.lazy ? Tensor() : shard->part(0), birth);
  shards_.emplace(spec.name, std::move(shard));
  return true;
}

WaitingRoom::Time Service::time_to_return() const {
  return std::chrono::steady_clock::now() + kGracesToReturn * options_.worker_grace;
}

void Service::go_on_without(const std::string& task) {
  lost_.give_up(task);
  settle_rounds();
  waiting_->look();  // as with bounded staleness
}

std::string Service::awaited_by(const Shard& shard) {
  const std::set<std::string> come = shard.contributors();
  const auto now = std::chrono::steady_clock::now();
  return with_clocks([&](ClockTable& clocks) {
    return clocks.awaited_names([&](const std::string& task) { return come.contains(task); }, now);
  });
}

// One at a time, who sees to it that what others ask for meanwhile is done: an update that takes
// long keeps one thread of the pool, not all.
void Service::settle_rounds() {
  if (!options_.consistency.synchronous()) return;
  settling_wanted_ = true;
  while (settling_wanted_) {
    const std::unique_lock turn(settling_mutex_, std::try_to_lock);
    if (!turn) return;
    if (settling_wanted_.exchange(false)) settle_all();
  }
}

void Service::settle_all() {
  bool failed = false;
  for (const auto& shard : shards()) {
    try {
      if (!shard->settle()) continue;
    } catch (const std::exception& error) {  // nobody waits for the answer
      options_.notice(str("parameter server: an update of shard \"", shard->spec().name,
                          "\" has to wait: ", error.what()));
      failed = true;
      continue;
    }
    ++applied_;
    --counted_;
    ++staleness_[0];
  }
  waiting_->look();
  if (failed && !settles_again_.exchange(true))
    at(std::chrono::steady_clock::now() + options_.worker_grace, [this] {
      settles_again_ = false;
      settle_rounds();
    });
}

void Service::look_for(const std::string& task) {
  at(std::chrono::steady_clock::now() + options_.worker_grace, [this, task] {
    const bool synchronous = options_.consistency.synchronous();
    const bool is_missed = with_clocks([&](ClockTable& clocks) {
      // With bounded staleness, one of the servers has the clocks, and on the others it has none.
      return clocks.has_gone(task, std::chrono::steady_clock::now()) &&
             (synchronous || clocks.completed(task).has_value());
    });
    if (!is_missed) return;
    options_.notice(str("parameter server: ", task, " has gone; ",
                        synchronous ? "updates are made without its gradients"
                                    : "the others wait for it no longer"));
    settle_rounds();
  });
}

void Service::at(WaitingRoom::Time time, std::function<void()> action) {
  waiting_->wait({.is_ready = [] { return false; },
                  .deadline = time,
                  .proceed = [this, action = std::move(action)](bool) { pool_->run(action); }});
}

PushResult Service::push(Shard& shard, IncomingPush push) {
  const std::string task = push.task;
  if (shard.makes_rounds()) {
    // Who is refused takes no part, and an old copy does not bring back who has left since.
    shard.check_push(push.rows);
    refuse_if_retired(push.start);
    if (!shard.has_come(task, push.mark))
      with_clocks(
          [&](ClockTable& clocks) { clocks.complete(task, 0, std::chrono::steady_clock::now()); });
  }
  const Mark mark = push.mark;
  const bool has_gradient = !push.rows || !push.rows->empty();
  const PushResult result = shard.push(std::move(push));
  if (result.outcome != PushOutcome::kRepeated) lost_.write_down(shard.spec().name, task, mark);
  switch (result.outcome) {
    case PushOutcome::kApplied:
      if (!has_gradient) break;
      ++applied_;
      ++staleness_[std::min<uint64_t>(result.staleness, staleness_.size() - 1)];
      break;
    case PushOutcome::kRepeated:
      ++repeated_;
      break;
    case PushOutcome::kCounted:
      ++counted_;
      break;
    case PushOutcome::kLate:
      ++late_;
      break;
    case PushOutcome::kRefused:  // has thrown
      break;
  }
  if (result.lost > 0 && !result.again) lost_.add(task, result.lost, shard.spec().name);
  if (result.outcome == PushOutcome::kApplied) waiting_->look();
  if (result.awaited_share > kSlowShare) name_slow(task, result.awaited_share);
  return result;
}

std::chrono::milliseconds Service::quiet_wait() const {
  return kGracesToName * options_.worker_grace;
}

WaitingRoom::Time Service::time_to_name_awaited(const Shard& shard) const {
  // Whoever waits may have asked before.
  const auto since = shard.round_began();
  return since.value_or(std::chrono::steady_clock::now()) + quiet_wait();
}

void Service::name_awaited(const Shard& shard) {
  const std::string awaited = awaited_by(shard);
  if (awaited.empty() || !is_slow_news(awaited)) return;
  options_.notice(str("parameter server: the next update has been waiting for more than ",
                      quiet_wait().count(), " ms for gradients of ", awaited));
}

bool Service::is_slow_news(const std::string& tasks) {
  const auto now = std::chrono::steady_clock::now();
  return with_clocks([&](ClockTable&) { return named_slow_.is_news(tasks, now); });
}

void Service::name_slow(const std::string& task, double share) {
  if (!is_slow_news(task)) return;
  options_.notice(str("parameter server: the other workers wait for ", task, ", ",
                      static_cast<int>(100 * share), "% of the time of the last updates"));
}

void Service::keep_ledger(bool anew) {
  if (lost_.keep_ledger(anew)) at(time_to_return(), [this] { lost_.give_up(); });
  for (const auto& [key, starts] : lost_.starts())
    for (size_t i = 0; i + 1 < starts.size(); ++i) roster_.retire(key.task, starts[i].incarnation);
}

void Service::shut_down() {
  lost_.end();
  {
    const std::lock_guard lock(sessions_mutex_);
    ended_ = true;
    callers_end_.notify_all();
  }
  shut_down_();
}

ServerStatistics Service::statistics() const {
  ServerStatistics s{.epoch = epoch_,
                     .pushes_applied = applied_,
                     .pushes_repeated = repeated_,
                     .pushes_late = late_,
                     .pushes_lost = lost_.count(),
                     .requests_refused = refused_,
                     .snapshots_failed = snapshots_failed_,
                     .received_bytes = received_,
                     .sent_bytes = sent_};
  uint64_t dropped = 0;
  for (const auto& shard : shards()) {
    ++s.shards;
    s.rows += static_cast<uint64_t>(shard->rows_in_use());
    s.bytes += shard->bytes();
    dropped += shard->dropped();
  }
  s.pushes_late += dropped;
  s.pushes_counted =
      static_cast<uint64_t>(std::max<int64_t>(counted_ - static_cast<int64_t>(dropped), 0));
  for (size_t i = 0; i < staleness_.size(); ++i) s.staleness[i] = staleness_[i];
  const std::lock_guard lock(sessions_mutex_);
  s.sessions = sessions_;
  const auto known = [&](SessionKind kind) {
    const auto found = known_sessions_.find(kind);
    return found == known_sessions_.end() ? 0 : found->second;
  };
  s.sharing_sessions = known(SessionKind::kSharedMemory);
  s.direct_sessions = known(SessionKind::kDirect);
  return s;
}

uint64_t Service::sessions() const {
  const std::lock_guard lock(sessions_mutex_);
  return sessions_;
}

}  // namespace cohort::parameter_server
