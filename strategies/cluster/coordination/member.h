#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strategies/cluster/coordination/host_probe.h"
#include "strategies/cluster/coordination/leader_link.h"
#include "strategies/cluster/coordination/leader_server.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/running_clock.h"
#include "strategies/cluster/coordination/timing.h"

namespace cohort::proto {
class Request;
}  // namespace cohort::proto

namespace cohort::coordination {

// The membership of a task that is not alone: a client of the leader, and on rank 0 its server.
//
// Three kinds of threads meet here: the user's, which call and wait; gRPC's, which bring messages;
// and the pulse, which sends heartbeats, watches the leader, and runs callbacks.
class Member : public Membership, public LeaderLink::Listener, public KeyValueStore {
 public:
  // Joins; throws as Membership::join does.
  Member(Roster roster, std::string job_id, Security security, const MembershipOptions& options);
  ~Member() override;

  int rank() const override { return roster_.rank(); }
  int size() const override { return roster_.size(); }
  std::string task_name(int rank) const override;
  const std::string& job_id() const override { return job_id_; }
  uint64_t incarnation() const override { return incarnation_; }
  int64_t epoch() const override;
  KeyValueStore& store() override { return *this; }
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override;
  std::optional<Error> failure() const override;
  FailureWatch on_failure(std::function<void(const Error&)> callback) override;
  void report(const Error& error) override;
  void announce_stop() override;
  std::optional<int64_t> stop_step(int64_t steps_done) override;
  bool leave(std::chrono::milliseconds timeout) override;

 private:
  using Time = RunningClock::Time;
  enum class Phase { kJoining, kRunning, kLeaving, kLeft, kFailed };
  // What became of a call to the leader.
  struct Outcome {
    std::optional<Error> error;
    std::string value;
    int64_t number = 0;
  };

  // KeyValueStore
  void set(std::string_view key, std::string_view value) override;
  std::string get(std::string_view key, std::chrono::milliseconds timeout) override;
  std::optional<std::string> find(std::string_view key) override;
  int64_t add(std::string_view key, int64_t amount) override;
  bool compare_set(std::string_view key, std::optional<std::string_view> expected,
                   std::string_view value) override;
  void erase(std::string_view key) override;
  void check() const override;

  // member_joining.cc
  void join(std::chrono::milliseconds timeout);
  void start_server(Time deadline);
  // One connection; true when all have joined, false when it has to be tried again.
  bool try_to_join(size_t attempt);
  // Waits for `ready`, or until a time. Meanwhile sends heartbeats, and says who is missing. Gives
  // up after an interrupt.
  bool wait_joining(std::unique_lock<std::mutex>& lock, Time until,
                    const std::function<bool()>& ready);
  // Names a leader that has stopped saying who is missing, and then gives up the connection.
  void doubt_leader(Time::duration silence);
  // Who waits for others has no connection to the leader any more, which may come again.
  void lose_connection(const std::string& how);
  void send_join();
  void answer_roll_call();
  std::string whom_it_waits_for() const;
  Error timed_out() const;
  // Tells the leader, or those that wait for this one to lead, and throws the error.
  [[noreturn]] void give_up(const Error& error);

  // member.cc
  Outcome call(proto::Request& request, std::chrono::milliseconds timeout = {});
  std::string leader() const { return roster_.described(0) + ", the leader,"; }
  // How much longer than the leader's own deadlines to wait for its answers.
  std::chrono::milliseconds patience() const { return 2 * timing_.dead; }
  void received(const proto::FromLeader& message) override;
  void closed(const std::string& reason) override;
  void handle(const proto::FromLeader& message);
  void fail(Error error);
  // What the leader says cannot be kept: this task has failed.
  void fail_without_memory() { fail(std::move(no_memory_)); }
  void check_usable() const;

  // member_pulse.cc
  void pulse();
  // People of what there is to say, and callbacks of a failure.
  void tell(std::unique_lock<std::mutex>& lock);
  void beat();
  Time next_pulse();
  bool watches_leader() const;
  // After which silence of the leader its host is asked.
  std::chrono::milliseconds asks_after() const { return timing_.suspect / 2; }
  void watch_leader();
  // Says so, once.
  void suspect_leader(std::chrono::milliseconds silence);
  void lose_leader(const std::string& how);
  void vote();
  void notice(const std::string& line);
  void print_notices(std::unique_lock<std::mutex>& lock);
  void run_callbacks(std::unique_lock<std::mutex>& lock);

  const Roster roster_;
  std::string job_id_;
  const Security security_;
  const std::function<void(const std::string&)> print_;
  const uint64_t incarnation_;
  Timing timing_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;  // anything below
  RunningClock clock_;
  Phase phase_ = Phase::kJoining;
  std::optional<Error> failure_, refusal_;
  Error no_memory_;  // made while there is some
  int64_t epoch_ = 0;
  bool link_closed_ = false;  // or given up
  Time join_started_, join_deadline_, next_heartbeat_, next_waiting_line_;
  std::string trouble_;        // why there is no connection to the leader
  bool trouble_told_ = false;  // by the leader itself
  bool accepted_ = false;      // the leader waits for others
  std::vector<int> missing_;   // some of them
  int missing_count_ = 0;
  int64_t roll_call_ = 0;         // to be answered; 0: none
  std::vector<int> left_behind_;  // members that had not left with this one
  uint64_t last_call_ = 0;
  std::map<uint64_t, std::optional<Outcome>> calls_;  // that wait
  Time leader_heard_;
  bool leader_suspected_ = false;
  std::optional<HostProbe> leader_host_;
  std::deque<std::string> notices_;
  bool wake_pulse_ = false, stopping_ = false;

  // Stopping. See stop_step().
  std::atomic<bool> attention_ = false;  // the job stops, or has failed
  std::atomic<int64_t> steps_done_ = 0;
  bool stop_requested_ = false, voted_ = false, reported_ = false;
  std::optional<int64_t> stop_step_;

  std::shared_ptr<FailureCallbacks> callbacks_ = std::make_shared<FailureCallbacks>();
  std::unique_ptr<LeaderServer> server_;
  std::unique_ptr<LeaderLink> link_;
  std::thread pulse_;
};

}  // namespace cohort::coordination
