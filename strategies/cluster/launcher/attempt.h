#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/launcher/agent.h"
#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/exit_status.h"
#include "strategies/cluster/launcher/local_cluster.h"
#include "strategies/cluster/launcher/memory_kills.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/output_sink.h"
#include "strategies/cluster/launcher/report_schedule.h"
#include "strategies/cluster/launcher/restart_pause.h"
#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/launcher/task_output.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// What all attempts share.
struct Setting {
  const Options& options;
  const LocalCluster& cluster;
  const std::string& program;      // the file to run
  const Environment& environment;  // of the launcher, as far as tasks should see it
  const Signals& signals;
  const net::Descriptor& signal_queue;
  const net::Descriptor& lifeline;  // readable when the guard is gone
  Console& console;
  Agent* agent = nullptr;  // to the attempts on other nodes, if there are any
  // When the run has lasted too long; nothing where the rendezvous says so.
  std::optional<std::chrono::steady_clock::time_point> timeout = {};

  // Queues a line of the launcher itself, about an error or what has failed.
  template <typename... Parts>
  void say(const Parts&... parts) const {
    console.errors->append(str("cohort-run: ", parts..., "\n"));
  }
  // The same about all else, of which --quiet wants nothing.
  template <typename... Parts>
  void note(const Parts&... parts) const {
    if (!options.quiet) say(parts...);
  }
};

// One run of all tasks of this host, from the start of the first to the end of the last process
// below this one. Attempts on several nodes are one: what a task's end or a signal makes one of
// them do, the agents make the others do, and none is a success before the trainers of all have
// ended. Where options allow it, a task that fails is started again alone, by the attempt of its
// host, as long as nothing has ended the run.
class Attempt {
 public:
  using Clock = std::chrono::steady_clock;

  // One task, with its latest process.
  struct TaskRun {
    std::string name;
    pid_t pid = 0;
    Clock::time_point started;
    bool ended = false;
    ExitStatus status;  // when it has ended
    std::shared_ptr<LastLines> last_lines;
    std::vector<TaskOutput> streams;

    int restarts = 0;  // alone
    RestartPause restart_pause;
    std::optional<Clock::time_point> next_start;  // of one that has ended and is to come back

    // "exited with code 3".
    std::string describe_end() const { return ended ? status.describe() : "could not be ended"; }
  };

  // Starts all tasks, after `restart` restarts of all. When one cannot be started, the others are
  // killed and its error is thrown.
  Attempt(const Setting& setting, int restart);

  // Returns when nothing is left to run. Errors: kAborted when the guard is gone, with all
  // processes killed.
  void run();

  const std::vector<TaskRun>& tasks() const { return tasks_; }
  // The position of the task whose failure ended the attempt; nothing after a success.
  std::optional<size_t> failed() const { return failed_; }
  // How likely the failure that ended the attempt is the cause of failures on other nodes.
  int weight_of_failure() const { return weight(tasks_[*failed_].status); }
  // Whether it was ended because the run has lasted too long; no task has failed then.
  bool timed_out() const { return timed_out_; }
  // Whether a signal asked for the end.
  bool was_told_to_end() const { return passed_on_ != 0; }

 private:
  // In the order in which an attempt may pass through them.
  enum class Phase {
    kRunning,
    kSettling,       // one task has said that the run is over: the others may end by themselves
    kAwaitingCause,  // one has failed, perhaps because of another, which may yet say so and end
    kEnding,         // all have been asked to end
    kKilling,
  };

  // When it cannot be started, all are killed and the error is thrown.
  void start(size_t task);
  // The logs of its last process, if it had one, go on.
  void start_process(size_t task);
  // None where it cannot be opened, of which a line tells; before any restart that is an error.
  Log log_of(size_t task, const char* stream) const;
  void wait_for_events() const;
  int milliseconds_to_wait() const;
  void move_output();
  void handle_signals();
  void handle_signal(int signal);
  void pass_on(int signal, const std::string& origin);
  void interrupt_again(const std::string& origin);
  // Does what the other nodes do.
  void follow();
  void follow(const Message& order);
  void tell(const Message& message) const;
  void reap();
  ExitStatus explained(ExitStatus status);
  void record(size_t task, const ExitStatus& status);
  // Whether nothing has ended the run yet.
  bool may_restart_tasks() const { return phase_ < Phase::kEnding && !failed_; }
  bool may_come_back(size_t task) const;
  void plan_restart(size_t task);
  // Starts the tasks whose time has come; none is started any more when the run ends.
  void restart_tasks();
  // Whether its time has come, and nothing of its last process is in the way.
  static bool is_due(const TaskRun& run);
  void note_task_restarts() const;
  // Of a task that ends when all have been asked to: whether nobody here has killed it, or it has
  // an error of which another one was told. What was killed may take longer to disappear, and what
  // has an error to unwind, than others to notice it and end. To save and say so is what it has
  // been asked for.
  bool may_be_cause(const ExitStatus& status) const;
  // How likely a failure is the cause of others: those who did what a signal asked for, miss a
  // peer, were aborted, or ask to be resumed, may only have noticed what happened to another. Of
  // these, who asks to be resumed comes first: others may miss it.
  int weight(const ExitStatus& status) const;
  // Draws the consequences of tasks that have ended.
  void advance();
  void tell_that_trainers_have_ended();
  // Says from time to time who trains on though another one has finished, as long as nobody has
  // been asked to end: a stopped task would do so for ever.
  void report_trainers();
  // Says once of parameter servers that have ended with 0 long before the run does.
  void report_servers();
  void settle(const Settle& order);
  // False when it has gone as far already.
  bool start_settling(const Settle& order);
  void end_with_others(const std::string& reason);
  // Of each trainer that has ended with 0 and has left processes that lost their parent, one.
  std::map<size_t, pid_t> left_processes() const;
  // Before they are asked to end.
  void warn_of_left_processes() const;
  // Asks all processes to end. What becomes of them then is no failure of theirs.
  void end_all();
  void kill_all();
  void check_deadline();
  void time_out();
  void start_grace();

  void send_to_all(int signal);
  // To what tasks have left behind, as far as it has not got it yet: the children of a process that
  // has ended meanwhile come to this one only then.
  void send_to_orphans(int signal);
  // Whether a task may end by itself; one that is stopped cannot.
  bool any_may_end() const;
  bool has_ended(const std::string& name) const;
  bool is_trainer(size_t task) const;
  bool is_server(size_t task) const;
  bool trainers_have_ended() const;
  // Whether a task that has ended is to be started again.
  bool awaits_start() const;
  bool is_over() const { return has_given_up_ || (!has_children_ && !awaits_start()); }
  // The names of tasks that have not ended; the second says something even when there is none.
  std::string running() const;
  std::string what_runs() const;

  const Setting& setting_;
  const int restart_;
  MemoryKills memory_kills_;
  std::vector<TaskRun> tasks_;
  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;  // of the phase
  bool failures_count_ = true;                 // the tasks' ends are their own doing
  std::optional<size_t> failed_;
  std::optional<size_t> not_restarted_;  // a task that waited for its start when a signal came
  int passed_on_ = 0;                    // the last signal that asked for the end
  std::set<pid_t> sent_to_;  // who has the last signal to all, as for kill(): the group of -pid
  std::map<int, Clock::time_point> last_requests_;  // when each signal has come to this host
  int came_from_elsewhere_ = 0;                     // a signal that this host may still get, too
  bool told_of_trainers_ = false;
  ReportSchedule trainer_reports_;                  // from when the first has finished
  std::optional<Clock::time_point> server_report_;  // when servers that have ended are to be named
  bool timed_out_ = false;
  bool has_children_ = true;   // adopted ones too
  bool has_given_up_ = false;  // on processes that cannot be killed
};

}  // namespace cohort::launcher
