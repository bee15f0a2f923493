#include <new>
#include <utility>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/leader_state.h"
#include "strategies/cluster/coordination/limits.h"

// How members are lost.
namespace cohort::coordination {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

}  // namespace

void LeaderState::closed(const ConnectionPtr& connection) {
  strangers_.erase(connection);
  std::erase_if(claims_, [&](const auto& claim) { return claim.second.connection == connection; });
  const auto found = ranks_.find(connection.get());
  if (found == ranks_.end()) return;
  const int rank = found->second;
  attempt(connection, [&] { lose(rank, loss_of(rank)); });
}

Error LeaderState::loss_of(int rank) const {
  if (absence_)
    return Error(Code::kUnavailable,
                 str(roster_.described(0), ", the leader, was stopped for ",
                     in_words(absence_->length), ", after which others count it as dead; ",
                     roster_.described(rank), " has closed its connection"),
                 name(0));
  return Error(
      Code::kUnavailable,
      str(roster_.described(rank),
          " is gone: its connection has closed, as when a process ends or takes nothing of "
          "what it is sent, or its host cannot be reached (incarnation ",
          in_hex(members_.at(rank).incarnation), ")"),
      name(rank));
}

void LeaderState::was_away(Time::duration length, Time now) {
  // The others count from the last heartbeat before that.
  if (length >= timing_.dead - timing_.heartbeat)
    absence_ = {duration_cast<milliseconds>(length), now};
}

void LeaderState::check_silence(Time now) {
  std::vector<int> suspects, dead;
  for (const auto& [rank, member] : members_) {
    const auto silence = now - member.heard;
    if (silence >= timing_.dead) {
      dead.push_back(rank);
    } else if (silence >= timing_.suspect && !member.suspected) {
      suspects.push_back(rank);
    }
  }
  for (const int rank : suspects) suspect(rank, now);
  for (const int rank : dead) {
    if (!members_.count(rank)) continue;  // the death before has ended the job
    const auto silence = duration_cast<milliseconds>(now - members_.at(rank).heard);
    lose(rank, Error(Code::kUnavailable,
                     str(roster_.described(rank), " counts as dead: silent for ", in_words(silence),
                         " (incarnation ", in_hex(members_.at(rank).incarnation), ")"),
                     name(rank)));
  }
}

void LeaderState::suspect(int rank, Time now) {
  Member& member = members_.at(rank);
  member.suspected = true;
  proto::FromLeader message;
  proto::Suspicion& suspicion = *message.mutable_suspicion();
  suspicion.set_rank(rank);
  suspicion.set_silent_ms(duration_cast<milliseconds>(now - member.heard).count());
  broadcast(message);
}

void LeaderState::hear(int rank, Time now) {
  Member& member = members_.at(rank);
  member.heard = now;
  if (!std::exchange(member.suspected, false)) return;
  proto::FromLeader message;
  message.mutable_suspicion()->set_rank(rank);
  message.mutable_suspicion()->set_over(true);
  broadcast(message);
}

void LeaderState::lose(int rank, const Error& error) {
  const auto member = members_.find(rank);
  if (member == members_.end()) return;
  const bool was_leaving = member->second.leave_deadline.has_value();
  // While tasks gather, all but the leader may go and come again.
  if (was_leaving || (phase_ == Phase::kGathering && rank != 0)) {
    member->second.connection->drop_answers();
    remove(rank);
    if (phase_ == Phase::kGathering) tell_of_loss(error);
    return;
  }
  declare_failure(error);
}

void LeaderState::tell_of_loss(const Error& error) {
  proto::FromLeader message;
  write_fault(error, message.mutable_lost());
  broadcast(message);
}

void LeaderState::declare_failure(const Error& error) {
  if (phase_ == Phase::kFailed) return;
  failure_ = error;
  phase_ = Phase::kFailed;
  ++epoch_;
  tell_failure();
}

void LeaderState::tell_failure() {
  proto::FromLeader message;
  write_fault(*failure_, message.mutable_failure()->mutable_fault());
  message.mutable_failure()->set_epoch(epoch_);
  while (!members_.empty()) {
    const auto told = members_.begin();
    Connection& connection = *told->second.connection;
    connection.send(message);
    connection.drop_answers();  // who takes none would have them kept until it goes
    connection.finish();
    ranks_.erase(&connection);
    members_.erase(told);
  }
}

void LeaderState::end_starved() {
  try {
    declare_failure(Error(
        Code::kResourceExhausted,
        str(roster_.described(0), ", the leader, has no memory left to lead the job"), name(0)));
    tell_failure();
    starved_ = false;
  } catch (const std::bad_alloc&) {  // the next tick() goes on with it
  }
}

void LeaderState::remove(int rank) {
  const auto member = members_.find(rank);
  member->second.connection->finish();
  ranks_.erase(member->second.connection.get());
  members_.erase(member);
  absent_.clear();  // the roll is called again when all are there
  ++epoch_;
  if (phase_ != Phase::kRunning) return;
  answer(barriers_.leave(rank));
  count_stop_votes();
}

void LeaderState::stop() {
  attempt(nullptr, [&] {
    declare_failure(
        Error(Code::kUnavailable,
              str(roster_.described(0), ", the leader, has ended the job while others were in it"),
              name(0)));
  });
}

}  // namespace cohort::coordination
