#include <utility>

#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/leader_state.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/parsing.h"

// How members come in.
namespace cohort::coordination {
namespace {

// Ranks that a message about missing members names at most.
constexpr int kMaxNamedMissing = 32;
// How many heartbeats may pass without a sign of life of a member whose rank somebody claims.
constexpr int kHeartbeatsForClaims = 3;

// An error about two tasks that disagree.
template <typename Theirs, typename Ours>
Error mismatch(std::string_view what, const Theirs& theirs, const Ours& ours,
               std::string_view advice) {
  return Error(Code::kFailedPrecondition,
               str("this task has ", what, " ", theirs, ", the leader ", ours, "; ", advice));
}

}  // namespace

bool LeaderState::fits(const ConnectionPtr& from, const proto::Join& join, Time now) {
  if (const auto error = refusal(join)) {
    refuse(from, join.rank(), *error, now);
    return false;
  }
  if (join.cluster_hash() != roster_.cluster_hash()) {
    refuse(from, join.rank(),
           mismatch("cluster hash", in_hex(join.cluster_hash()), in_hex(roster_.cluster_hash()),
                    "all tasks must be given the same cluster, as in TF_CONFIG"),
           now, told_cluster_);
    return false;
  }
  try {
    from->tasks().check(job_id_, name(join.rank()));
  } catch (const Error& error) {
    refuse(from, join.rank(), error, now);
    return false;
  }
  return true;
}

void LeaderState::tell_whether_it_fits(const ConnectionPtr& from, const proto::Join& join,
                                       Time now) {
  if (!fits(from, join, now)) return;
  if (phase_ != Phase::kGathering || members_.contains(join.rank())) return turn_away(from);
  from->send(waiting_message());
  from->finish();
}

void LeaderState::join(const ConnectionPtr& from, const proto::Join& join, Time now) {
  if (!fits(from, join, now)) return;
  const int rank = join.rank();
  const auto member = members_.find(rank);
  if (member == members_.end()) return admit(from, rank, join.incarnation(), now);
  if (member->second.incarnation == join.incarnation()) {
    // A late copy, or somebody else's: a member of a job that runs does not join again.
    if (phase_ != Phase::kGathering) return turn_away(from);
    // The same task: what still arrives over its older connection is no sign of another.
    lose(rank, Error(Code::kUnavailable,
                     str(roster_.described(rank),
                         " has given up its connection, and tries to join again (incarnation ",
                         in_hex(join.incarnation()), ")"),
                     name(rank)));
    return admit(from, rank, join.incarnation(), now);
  }
  if (claims_.count(rank)) return turn_away(from);
  claims_[rank] = {from, join.incarnation(), now, now + kHeartbeatsForClaims * timing_.heartbeat};
}

std::optional<Error> LeaderState::refusal(const proto::Join& join) const {
  if (join.protocol() != kProtocolVersion) {
    return mismatch("protocol version", join.protocol(), kProtocolVersion,
                    "all tasks must run the same version of Cohort");
  }
  if (!join.job_id().empty() && join.job_id() != job_id_) {
    return mismatch("job id", quote(join.job_id()), quote(job_id_),
                    "another job may be using the leader's address, or COHORT_JOB_ID differs");
  }
  if (join.size() != roster_.size()) {
    return mismatch("world size", join.size(), roster_.size(),
                    "all tasks must be started with the same number of tasks");
  }
  if (join.rank() < 0 || join.rank() >= roster_.size()) {
    return mismatch("rank", join.rank(), str("expects ranks 0 to ", roster_.size() - 1),
                    "every task needs a rank of its own within the world");
  }
  return {};
}

void LeaderState::admit(const ConnectionPtr& connection, int rank, uint64_t incarnation, Time now) {
  // All were here once, or the job has failed: whoever comes now comes too late.
  if (phase_ != Phase::kGathering) return turn_away(connection);
  members_[rank] = {.connection = connection, .incarnation = incarnation, .heard = now};
  ranks_[connection.get()] = rank;
  ++epoch_;
  if (static_cast<int>(members_.size()) < roster_.size())
    return connection->send(waiting_message());
  for (const auto& member : members_) absent_.insert(member.first);
  broadcast(waiting_message());
}

// Heartbeats are no answer: those that a member sent over a connection before it gave it up still
// arrive, when this process or the network wakes up.
void LeaderState::answer_roll_call(int rank, int64_t roll_call) {
  if (roll_call == epoch_ && absent_.erase(rank) > 0 && absent_.empty()) welcome_all();
}

void LeaderState::welcome_all() {
  phase_ = Phase::kRunning;
  proto::FromLeader message;
  proto::Welcome& welcome = *message.mutable_welcome();
  welcome.set_job_id(job_id_);
  welcome.set_epoch(epoch_);
  welcome.set_heartbeat_ms(timing_.heartbeat.count());
  welcome.set_suspect_ms(timing_.suspect.count());
  welcome.set_dead_ms(timing_.dead.count());
  broadcast(message);
}

void LeaderState::judge_claims(Time now) {
  const auto claims = claims_;
  for (const auto& [rank, claim] : claims) {
    const auto member = members_.find(rank);
    const bool alive = member != members_.end() && member->second.heard > claim.arrived;
    if (member != members_.end() && !alive && claim.deadline > now) continue;
    claims_.erase(rank);
    if (alive) {
      refuse(claim.connection, rank,
             Error(Code::kFailedPrecondition,
                   str("this task has rank ", rank,
                       ", which another living task has already: ", roster_.described(rank),
                       ", incarnation ", in_hex(member->second.incarnation), ", this one ",
                       in_hex(claim.incarnation), "; every task needs a rank of its own"),
                   name(rank)),
             now);
      continue;
    }
    if (member != members_.end()) {
      lose(rank, Error(Code::kUnavailable,
                       str(roster_.described(rank), " was started again: incarnation ",
                           in_hex(member->second.incarnation), " is silent, and ",
                           in_hex(claim.incarnation), " has taken its place"),
                       name(rank)));
    }
    admit(claim.connection, rank, claim.incarnation, now);
  }
}

void LeaderState::refused(const std::string& host, const Error& error, Time now) {
  if (auto line = refusals_.line(host, error, now)) notices_.push_back(std::move(*line));
}

void LeaderState::refuse(const ConnectionPtr& connection, int rank, const Error& error, Time now,
                         const std::string& cluster) {
  const bool is_known = rank >= 0 && rank < roster_.size();
  const std::string task = is_known ? str("rank ", rank, ", ", name(rank)) : str("rank ", rank);
  refused(connection->host(), error.with_context(task), now);
  proto::FromLeader message;
  write_fault(error, message.mutable_refused()->mutable_fault());
  message.mutable_refused()->set_cluster(cluster);
  connection->send(message);
  connection->finish();
}

void LeaderState::turn_away(const ConnectionPtr& connection) {
  proto::FromLeader message;
  write_fault(failure_ ? failure_->with_context("the job before this one is still ending")
                       : Error(Code::kUnavailable,
                               "the job is complete, or still busy with another task of this rank"),
              message.mutable_busy());
  connection->send(message);
  connection->finish();
}

proto::FromLeader LeaderState::waiting_message() const {
  proto::FromLeader message;
  proto::Waiting& waiting = *message.mutable_waiting();
  for (int rank = 0; rank < roster_.size() && waiting.missing_size() < kMaxNamedMissing; ++rank) {
    if (!members_.count(rank) || absent_.count(rank)) waiting.add_missing(rank);
  }
  waiting.set_missing_count(roster_.size() - static_cast<int>(members_.size() - absent_.size()));
  if (!absent_.empty()) waiting.set_roll_call(epoch_);
  return message;
}

}  // namespace cohort::coordination
