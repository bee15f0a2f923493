#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/coordination/answer.h"
#include "strategies/cluster/coordination/barrier_table.h"
#include "strategies/cluster/coordination/certified_tasks.h"
#include "strategies/cluster/coordination/refusal_log.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/running_clock.h"
#include "strategies/cluster/coordination/shared_values.h"
#include "strategies/cluster/coordination/timing.h"

namespace cohort::proto {
class FromLeader;
class FromMember;
class Join;
class Request;
}  // namespace cohort::proto

namespace cohort::coordination {

// The way back to a member.
class Connection {
 public:
  virtual ~Connection() = default;
  // Does not wait, and fails only by std::bad_alloc, which sends nothing; nothing arrives after
  // finish() or the end of the connection.
  virtual void send(const proto::FromLeader& message) = 0;
  // Answers that wait to be sent are not sent any more.
  virtual void drop_answers() {}
  // Ends the call when all was sent.
  virtual void finish() = 0;
  // What the messages that wait to be sent take in memory.
  virtual size_t unsent_bytes() const { return 0; }
  // The address of the host at the other end; "" when it is not known.
  virtual std::string host() const { return ""; }
  // Which tasks may be at the other end.
  virtual CertifiedTasks tasks() const { return {}; }
};
using ConnectionPtr = std::shared_ptr<Connection>;

// All that the leader knows and decides, without network, threads and clock: whoever uses it says
// what arrived, and when. Not synchronised. Nothing that a member sends can break it: mistakes are
// answered, and end the connection of who made them. Where there is no memory for what a member
// says or is told, the next tick() ends the job by an error of the leader's (kResourceExhausted); a
// stranger is hung up on. (What has come from nobody yet, opened() and refused(), throws
// std::bad_alloc.)
class LeaderState {
 public:
  using Time = RunningClock::Time;
  LeaderState(const Roster& roster, std::string job_id, Timing timing, Time now);

  // A connection has come in: it has to join soon.
  void opened(const ConnectionPtr& connection, Time now) { strangers_[connection] = now; }
  void received(const ConnectionPtr& from, const proto::FromMember& message, Time now);
  // Has taken a message that was sent: a sign of life while nothing is read of what it says.
  void took(const ConnectionPtr& from, Time now);
  // The connection has ended, whoever ended it.
  void closed(const ConnectionPtr& connection);
  // The leader itself has looked at nothing for `length` until now, as when it was stopped. Where
  // that was long enough for the others to give it up, the job fails by the leader's fault if one
  // of them turns out to have gone, and not by that one's.
  void was_away(Time::duration length, Time now);
  // Somebody at `host`, "" when it is not known, has been refused before there was a connection.
  void refused(const std::string& host, const Error& error, Time now);
  // What the passing of time brings about: heartbeats, deadlines, deaths.
  void tick(Time now);
  // When tick() is due, if nothing arrives before.
  Time next_tick(Time now) const;
  // The leader ends: members that are still there are told.
  void stop();
  // Lines for the leader's own people, since the last call.
  std::vector<std::string> take_notices() { return std::exchange(notices_, {}); }

 private:
  enum class Phase { kGathering, kRunning, kFailed };
  struct Member {
    ConnectionPtr connection;
    uint64_t incarnation = 0;
    Time heard;
    bool suspected = false;
    size_t waiting_calls = 0;
    std::optional<Time> leave_deadline;  // set once it waits to leave
    std::optional<int64_t> stop_vote;
  };
  // Somebody who claims the rank of a member; it waits while the member is asked for a sign of
  // life.
  struct Claimant {
    ConnectionPtr connection;
    uint64_t incarnation = 0;
    Time arrived, deadline;
  };

  // Of the leader.
  struct Absence {
    std::chrono::milliseconds length;
    Time end;
  };

  // What there is no memory for may be half done: the job can do without it where it was for a
  // stranger, unless it was to tell all of a failure. `by`: whose doing it is, null for nobody's.
  template <typename Work>
  void attempt(const ConnectionPtr& by, const Work& work) {
    if (starved_) return;
    const bool is_strangers = by != nullptr && !ranks_.contains(by.get());
    try {
      work();
    } catch (const std::bad_alloc&) {
      starved_ = !is_strangers || phase_ == Phase::kFailed;
      if (!starved_) by->finish();
    }
  }

  // leader_joining.cc
  void join(const ConnectionPtr& from, const proto::Join& join, Time now);
  // What join() would say now, to somebody who does not join.
  void tell_whether_it_fits(const ConnectionPtr& from, const proto::Join& join, Time now);
  // Refuses a task that is not of this job.
  bool fits(const ConnectionPtr& from, const proto::Join& join, Time now);
  std::optional<Error> refusal(const proto::Join& join) const;
  // To a rank that is free, while tasks gather; else it is turned away.
  void admit(const ConnectionPtr& connection, int rank, uint64_t incarnation, Time now);
  void answer_roll_call(int rank, int64_t roll_call);
  void welcome_all();
  void judge_claims(Time now);
  // Who says that it has this rank; `cluster` is for who was given another one.
  void refuse(const ConnectionPtr& connection, int rank, const Error& error, Time now,
              const std::string& cluster = "");
  void turn_away(const ConnectionPtr& connection);
  proto::FromLeader waiting_message() const;

  // leader_failures.cc
  void check_silence(Time now);
  void suspect(int rank, Time now);
  void hear(int rank, Time now);
  // Of a member whose connection has closed.
  Error loss_of(int rank) const;
  void lose(int rank, const Error& error);
  // Those that wait while tasks gather.
  void tell_of_loss(const Error& error);
  void declare_failure(const Error& error);
  // All members that are still there.
  void tell_failure();
  // Ends the job for want of memory, if there is enough for that by now.
  void end_starved();
  // Removes a member that has ended well, or before the job began.
  void remove(int rank);

  // leader_state.cc
  void listen_to(const ConnectionPtr& from, const proto::FromMember& message, Time now);
  void handle(int rank, const proto::FromMember& message, Time now);
  void pass_time(Time now);
  void call(int rank, const proto::Request& request, Time now);
  void answer(const Answers& answers);
  std::optional<Error> error_of(const Answer& answer, const Connection& to) const;
  void leave(int rank, std::chrono::milliseconds timeout, Time now);
  void let_leave(Time now);
  void announce_stop(int rank);
  void count_stop_votes();
  void broadcast(const proto::FromLeader& message);
  void drop_strangers(Time now);
  std::string name(int rank) const { return roster_.name(rank); }

  const Roster& roster_;
  const std::string told_cluster_;
  const std::string job_id_;
  const Timing timing_;
  Phase phase_ = Phase::kGathering;
  std::optional<Absence> absence_;  // a short while ago
  int64_t epoch_ = 0;               // changes of membership so far; also the number of a roll call
  std::optional<Error> failure_;
  bool starved_ = false;                     // of memory, until that has ended the job
  std::map<int, Member> members_;            // by rank
  std::set<int> absent_;                     // have not answered the roll call, while there is one
  std::map<Connection*, int> ranks_;         // of the connections of members
  std::map<ConnectionPtr, Time> strangers_;  // have not joined yet; since when
  std::map<int, Claimant> claims_;           // by rank
  Time next_heartbeat_;
  SharedValues values_;
  BarrierTable barriers_;
  RefusalLog refusals_;
  std::vector<std::string> notices_;
  std::optional<int> stop_announced_by_;
  std::optional<int64_t> stop_step_;
};

}  // namespace cohort::coordination
