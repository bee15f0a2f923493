#include "strategies/cluster/coordination/leader_state.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/time_limits.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/cluster_difference.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;

// How exactly deadlines of calls are kept.
constexpr milliseconds kTickWhileWaiting(20);

}  // namespace

LeaderState::LeaderState(const Roster& roster, std::string job_id, Timing timing, Time now)
    : roster_(roster),
      told_cluster_(told_cluster(roster.cluster())),
      job_id_(std::move(job_id)),
      timing_(timing),
      next_heartbeat_(now),
      barriers_(roster) {}

void LeaderState::received(const ConnectionPtr& from, const proto::FromMember& message, Time now) {
  attempt(from, [&] { listen_to(from, message, now); });
}

void LeaderState::listen_to(const ConnectionPtr& from, const proto::FromMember& message, Time now) {
  const auto found = ranks_.find(from.get());
  if (found != ranks_.end()) return handle(found->second, message, now);
  // Others are those that have been finished, and claimants, which have nothing to say.
  if (!strangers_.erase(from)) return;
  if (message.has_join()) return join(from, message.join(), now);
  if (message.has_ask()) return tell_whether_it_fits(from, message.ask(), now);
  from->finish();
}

void LeaderState::took(const ConnectionPtr& from, Time now) {
  const auto found = ranks_.find(from.get());
  if (found != ranks_.end()) attempt(from, [&] { hear(found->second, now); });
}

void LeaderState::handle(int rank, const proto::FromMember& message, Time now) {
  hear(rank, now);
  switch (message.kind_case()) {
    case proto::FromMember::kHeartbeat:
      return;
    case proto::FromMember::kRequest:
      return call(rank, message.request(), now);
    case proto::FromMember::kReport: {
      const Error error = read_fault(message.report());
      return lose(rank, Error(error.code(), str(name(rank), " reports: ", error.message()),
                              error.peer().empty() ? name(rank) : error.peer()));
    }
    case proto::FromMember::kAnnounceStop:
      return announce_stop(rank);
    case proto::FromMember::kStopVote:
      members_.at(rank).stop_vote = message.stop_vote().step();
      return count_stop_votes();
    case proto::FromMember::kLeave:
      return leave(rank, clamped(milliseconds(message.leave().timeout_ms())), now);
    case proto::FromMember::kPresent:
      return answer_roll_call(rank, message.present().roll_call());
    case proto::FromMember::kQuit:
      return lose(rank,
                  Error(Code::kUnavailable,
                        str(roster_.described(rank),
                            " has left the job without leave(), as after an error of its own"),
                        name(rank)));
    case proto::FromMember::kJoin:
    case proto::FromMember::kAsk:
    case proto::FromMember::KIND_NOT_SET:
      break;
  }
  lose(rank,
       Error(Code::kInternal,
             str(roster_.described(rank), " has sent a message that makes no sense"), name(rank)));
}

void LeaderState::call(int rank, const proto::Request& request, Time now) {
  const Caller caller{rank, request.id()};
  Member& member = members_.at(rank);
  ++member.waiting_calls;
  if (phase_ != Phase::kRunning) {
    return answer({{caller, Error(Code::kFailedPrecondition, "not all tasks have joined")}});
  }
  if (member.waiting_calls > kMaxWaitingCalls) {
    return answer(
        {{caller, Error(Code::kResourceExhausted, str(name(rank), " has ", member.waiting_calls - 1,
                                                      " calls waiting at the leader; at most ",
                                                      kMaxWaitingCalls, " are allowed"))}});
  }
  const milliseconds timeout = clamped(milliseconds(request.timeout_ms()));
  switch (request.kind_case()) {
    case proto::Request::kSet:
      return answer(values_.set(caller, request.set().key(), request.set().value()));
    case proto::Request::kGet:
      return answer(values_.get(caller, request.get(), timeout, now));
    case proto::Request::kAdd:
      return answer(values_.add(caller, request.add().key(), request.add().amount()));
    case proto::Request::kCompareSet: {
      const proto::CompareSet& asked = request.compare_set();
      const auto expected =
          asked.has_expected() ? std::optional<std::string_view>(asked.expected()) : std::nullopt;
      return answer(values_.compare_set(caller, asked.key(), expected, asked.value()));
    }
    case proto::Request::kFind:
      return answer(values_.find(caller, request.find()));
    case proto::Request::kErase:
      return answer(values_.erase(caller, request.erase()));
    case proto::Request::kBarrier:
      return answer(barriers_.arrive(caller, request.barrier(), timeout, now));
    case proto::Request::KIND_NOT_SET:
      break;
  }
  answer({{caller, Error(Code::kUnimplemented, "the leader does not know this call")}});
}

void LeaderState::answer(const Answers& answers) {
  for (const Answer& answer : answers) {
    const auto member = members_.find(answer.to.rank);
    if (member == members_.end()) continue;
    --member->second.waiting_calls;
    proto::FromLeader message;
    proto::Reply& reply = *message.mutable_reply();
    reply.set_id(answer.to.id);
    Connection& connection = *member->second.connection;
    if (const auto error = error_of(answer, connection)) {
      write_fault(*error, reply.mutable_error());
    } else {
      reply.set_value(std::string(answer.value));
    }
    reply.set_number(answer.number);
    connection.send(message);
  }
}

// Its own, or that there is no room for its value. For many calls may wait for values that come
// all at once: as much as a store can hold may be on its way to a member.
std::optional<Error> LeaderState::error_of(const Answer& answer, const Connection& to) const {
  constexpr size_t kMost = KeyValueStore::kMaxStoreBytes;
  if (answer.error || answer.value.empty()) return answer.error;
  const size_t unsent = to.unsent_bytes();
  if (unsent + answer.value.size() <= kMost) return {};
  return Error(Code::kResourceExhausted,
               str(name(answer.to.rank), " has ", unsent,
                   " bytes of answers still to take from the leader, and no room for a value of ",
                   answer.value.size(), "; at most ", kMost, " bytes are allowed"));
}

void LeaderState::tick(Time now) {
  attempt(nullptr, [&] { pass_time(now); });
  if (starved_) end_starved();
}

void LeaderState::pass_time(Time now) {
  // What others did meanwhile has been heard of by then.
  if (absence_ && now - absence_->end >= timing_.suspect) absence_.reset();
  drop_strangers(now);
  check_silence(now);
  judge_claims(now);
  answer(values_.expire(now));
  answer(barriers_.expire(now));
  let_leave(now);
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + timing_.heartbeat;
  proto::FromLeader message;
  message.mutable_heartbeat();
  broadcast(phase_ == Phase::kGathering ? waiting_message() : message);
}

void LeaderState::drop_strangers(Time now) {
  std::erase_if(strangers_, [&](const auto& stranger) {
    if (now - stranger.second < timing_.dead) return false;
    stranger.first->finish();
    return true;
  });
}

LeaderState::Time LeaderState::next_tick(Time now) const {
  if (starved_) return now + kTickWhileWaiting;
  Time next = next_heartbeat_;
  bool somebody_leaves = false;
  for (const auto& [rank, member] : members_) {
    next = std::min(next, member.heard + (member.suspected ? timing_.dead : timing_.suspect));
    somebody_leaves |= member.leave_deadline.has_value();
  }
  if (values_.anybody_waits() || barriers_.anybody_waits() || !claims_.empty() || somebody_leaves) {
    next = std::min(next, now + kTickWhileWaiting);
  }
  return next;
}

void LeaderState::leave(int rank, milliseconds timeout, Time now) {
  members_.at(rank).leave_deadline = now + timeout;
  count_stop_votes();
  let_leave(now);
}

void LeaderState::let_leave(Time now) {
  if (phase_ != Phase::kRunning) return;
  std::vector<int> staying, leaving, late;
  for (const auto& [rank, member] : members_) {
    (member.leave_deadline ? leaving : staying).push_back(rank);
    if (member.leave_deadline && *member.leave_deadline <= now) late.push_back(rank);
  }
  proto::FromLeader message;
  for (const int rank : staying) message.mutable_left()->add_missing(rank);
  message.mutable_left();
  for (const int rank : staying.empty() ? leaving : late) {
    members_.at(rank).connection->send(message);
    remove(rank);
  }
}

void LeaderState::announce_stop(int rank) {
  if (stop_announced_by_) return;
  stop_announced_by_ = rank;
  proto::FromLeader message;
  message.mutable_stop_requested()->set_rank(rank);
  broadcast(message);
}

void LeaderState::count_stop_votes() {
  if (!stop_announced_by_ || stop_step_) return;
  std::optional<int64_t> latest;
  for (const auto& [rank, member] : members_) {
    if (member.leave_deadline) continue;  // it has done its last step
    if (!member.stop_vote) return;
    latest = std::max(latest, member.stop_vote);
  }
  if (!latest) return;
  stop_step_ = latest;
  proto::FromLeader message;
  message.mutable_stop_agreed()->set_step(*latest);
  broadcast(message);
}

void LeaderState::broadcast(const proto::FromLeader& message) {
  for (const auto& [rank, member] : members_) member.connection->send(message);
}

}  // namespace cohort::coordination
