#include "strategies/cluster/launcher/attempt.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <poll.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/program.h"
#include "core/base/quote.h"
#include "strategies/cluster/launcher/child.h"
#include "strategies/cluster/launcher/core_share.h"
#include "strategies/cluster/launcher/descendants.h"
#include "strategies/cluster/launcher/task_log.h"

namespace cohort::launcher {
namespace {

// How long killed processes may take to disappear before they are given up, and how often those are
// killed that were adopted in the meantime.
constexpr std::chrono::seconds kPatience(5);
constexpr int kKillInterval = 10;  // milliseconds
// How long the one at fault may take to say so and end, once those have ended that were told of it:
// whoever leads a job does so up to 2 s later than they, for their connections to close.
constexpr std::chrono::seconds kTimeForCause(3);
// How long what a task has left behind may take to end by itself: helpers that see the end of whom
// they help, as Python has them, are nothing to warn of.
constexpr std::chrono::milliseconds kTimeForHelpers(200);
constexpr std::chrono::milliseconds kHelperInterval(5);
// How long the others may go on after a parameter server has ended with 0, as one does that was
// told that the work is done, until that is something to warn of.
constexpr std::chrono::seconds kTimeAfterServers(5);

std::string prefix(const std::string& name, size_t task, bool coloured) {
  constexpr int kColours[] = {36, 33, 35, 32, 34};  // red is left to errors
  const std::string text = str("[", name, "]");
  if (!coloured) return text + " ";
  return str("\033[", kColours[task % std::size(kColours)], "m", text, "\033[0m ");
}

std::string times(int count) { return count == 1 ? "once" : str(count, " times"); }

std::string describe(const Attempt::TaskRun& run) {
  const std::string before =
      run.restarts == 0 ? "" : str(", after it was started again ", times(run.restarts));
  return str(run.name, " ", run.status.describe(), before);
}

// To a process, or the group of -pid, also where it is stopped: it could not end then. False when
// there is none.
bool send(pid_t pid, int signal) {
  if (kill(pid, signal) != 0) return false;
  kill(pid, SIGCONT);
  return true;
}

// As a task is that has been told of another one's error.
bool was_aborted(const ExitStatus& status) { return status.code() == exit_code(Code::kAborted); }

// Or that misses another.
bool may_be_victim(const ExitStatus& status) {
  return was_aborted(status) || status.code() == exit_code(Code::kUnavailable);
}

}  // namespace

Attempt::Attempt(const Setting& setting, int restart)
    : setting_(setting),
      restart_(restart),
      tasks_(setting.cluster.tasks().size()),
      deadline_(setting.timeout) {
  for (size_t i = 0; i < tasks_.size(); ++i) start(i);
}

void Attempt::start(size_t task) {
  try {
    start_process(task);
  } catch (...) {
    kill_descendants(kPatience);  // nobody would look after them
    throw;
  }
}

void Attempt::start_process(size_t task) {
  TaskRun& run = tasks_[task];
  const Restarts restarts = {restart_, run.restarts};
  const LocalCluster& cluster = setting_.cluster;
  const net::Descriptor socket = cluster.socket(task);
  Program program = {
      setting_.program, setting_.options.command,
      cluster.environment(task, setting_.environment, restarts, socket.get()).strings()};
  if (setting_.options.bind_to_cores)
    program.cores = core_share(static_cast<int>(task), setting_.options.tasks());
  Child child = launcher::start(program, socket, setting_.signals);

  run.name = cluster.tasks()[task].name();
  run.pid = child.pid;
  run.started = Clock::now();
  run.ended = false;
  run.next_start.reset();
  run.last_lines = std::make_shared<LastLines>();
  const bool is_shown = setting_.options.show.contains(cluster.tasks()[task]);
  std::vector<TaskOutput> before = std::exchange(run.streams, {});
  const auto add = [&](net::Descriptor pipe, const std::shared_ptr<OutputSink>& sink,
                       const char* name) {
    const size_t place = run.streams.size();
    run.streams.emplace_back(
        std::move(pipe),
        setting_.options.no_prefix ? "" : prefix(run.name, task, sink->has_colours()),
        is_shown ? sink : nullptr, setting_.console.errors,
        before.empty() ? log_of(task, name) : before[place].release_log(), run.last_lines);
  };
  add(std::move(child.output), setting_.console.output, "stdout");
  add(std::move(child.errors), setting_.console.errors, "stderr");
}

Log Attempt::log_of(size_t task, const char* stream) const {
  try {
    return open_log(setting_.options.log_dir, restart_, setting_.cluster.tasks()[task], stream);
  } catch (const Error& error) {
    if (restart_ == 0) throw;
    setting_.say(error.message(), "; going on without this log");
    return {};
  }
}

void Attempt::run() {
  while (!is_over()) {
    wait_for_events();
    move_output();
    handle_signals();
    follow();
    advance();
    report_trainers();
    report_servers();
    if (phase_ == Phase::kEnding) send_to_orphans(passed_on_ ? passed_on_ : SIGTERM);
    check_deadline();
    restart_tasks();
  }
  for (TaskRun& run : tasks_) {
    for (TaskOutput& stream : run.streams) stream.finish();
  }
  if (!failed_) failed_ = not_restarted_;
  note_task_restarts();
}

void Attempt::wait_for_events() const {
  std::vector<pollfd> events = {{setting_.signal_queue.get(), POLLIN, 0},
                                {setting_.lifeline.get(), POLLIN, 0}};
  setting_.console.watch(events);
  for (const TaskRun& run : tasks_) {
    for (const TaskOutput& stream : run.streams) events.push_back({stream.readable(), POLLIN, 0});
  }
  if (setting_.agent) setting_.agent->watch(events);
  poll(events.data(), events.size(), milliseconds_to_wait());
  if (events[1].revents) {
    kill_descendants(kPatience);
    fail(Code::kAborted, "cohort-run was killed; its tasks were killed too");
  }
}

int Attempt::milliseconds_to_wait() const {
  if (phase_ == Phase::kKilling) return kKillInterval;
  const int longest = setting_.agent ? static_cast<int>(kStepInterval.count()) : INT_MAX;
  const Clock::time_point now = Clock::now();
  std::optional<Clock::time_point> next = deadline_;
  const auto wake_at = [&](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  if (phase_ == Phase::kRunning && trainer_reports_.next()) wake_at(*trainer_reports_.next());
  if (phase_ == Phase::kRunning && server_report_) wake_at(*server_report_);
  for (const TaskRun& run : tasks_) {
    if (run.next_start)
      wake_at(std::max(*run.next_start, now + std::chrono::milliseconds(kKillInterval)));
  }
  if (!next) return setting_.agent ? longest : -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now);
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, longest));
}

void Attempt::move_output() {
  for (TaskRun& run : tasks_) {
    for (TaskOutput& stream : run.streams) {
      if (stream.readable() >= 0) stream.read_some();
    }
  }
  setting_.console.write_some();
}

void Attempt::handle_signals() {
  while (const int signal = next_signal(setting_.signal_queue)) {
    if (signal == SIGCHLD) {
      reap();
    } else {
      handle_signal(signal);
    }
  }
}

void Attempt::handle_signal(int signal) {
  const bool was_passed_on = std::exchange(came_from_elsewhere_, 0) == signal;
  const Clock::time_point now = Clock::now();
  const auto [last, is_first] = last_requests_.try_emplace(signal, now);
  if (!is_first && now - last->second < kSameRequest) return;
  last->second = now;
  const bool again = signal == SIGINT && !is_first && !was_passed_on;
  tell(Signal{signal, again, ""});
  // Whoever sent it meant more nodes than one, and the tasks have it already.
  if (was_passed_on) return;
  if (again) {
    interrupt_again("");
  } else {
    pass_on(signal, "");
  }
}

void Attempt::interrupt_again(const std::string& origin) {
  setting_.note("interrupted again", origin, "; killing ", what_runs());
  kill_all();
}

void Attempt::pass_on(int signal, const std::string& origin) {
  passed_on_ = signal;
  setting_.note("passing ", signal_name(signal), origin, " on to ", what_runs());
  send_to_all(signal);
  if (phase_ < Phase::kEnding) {
    phase_ = Phase::kEnding;
    start_grace();
  }
}

void Attempt::follow() {
  if (!setting_.agent) return;
  setting_.agent->step();
  while (const auto order = setting_.agent->next_order()) follow(*order);
}

void Attempt::follow(const Message& order) {
  if (const auto* signal = std::get_if<Signal>(&order)) {
    const std::string origin = " from " + signal->origin;
    if (signal->again && phase_ < Phase::kKilling) {
      interrupt_again(origin);
    } else if (phase_ < Phase::kEnding) {
      came_from_elsewhere_ = signal->number;
      pass_on(signal->number, origin);
    }
  } else if (const auto* settling = std::get_if<Settle>(&order)) {
    start_settling(*settling);
  } else if (const auto* end = std::get_if<End>(&order)) {
    end_with_others(end->reason);
  }
}

void Attempt::end_with_others(const std::string& reason) {
  if (phase_ >= Phase::kEnding) return;
  const std::string names = running();
  if (!reason.empty()) setting_.note(reason, names.empty() ? "" : str("; ending ", names));
  if (reason.empty()) warn_of_left_processes();
  end_all();
}

void Attempt::tell(const Message& message) const {
  if (setting_.agent) setting_.agent->tell(message);
}

void Attempt::reap() {
  siginfo_t ended{};
  int found = 0;
  while ((found = waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT)) == 0 && ended.si_pid) {
    const auto task = std::find_if(tasks_.begin(), tasks_.end(), [&](const TaskRun& run) {
      return run.pid == ended.si_pid && !run.ended;
    });
    if (task != tasks_.end())
      record(static_cast<size_t>(task - tasks_.begin()), explained(ExitStatus(ended)));
    // Not before what is left of its group is killed, whose number others could have after this.
    waitpid(ended.si_pid, nullptr, 0);
    ended = {};
  }
  has_children_ = found == 0;
}

// Those whom this process has killed itself are not the kernel's.
ExitStatus Attempt::explained(ExitStatus status) {
  if (status.was_killed_by(SIGKILL) && phase_ < Phase::kKilling)
    status.explain(memory_kills_.explain_next());
  return status;
}

void Attempt::record(size_t task, const ExitStatus& status) {
  TaskRun& run = tasks_[task];
  run.ended = true;
  run.status = status;
  for (TaskOutput& stream : run.streams) stream.read_available();
  if (status.ok() && is_trainer(task)) trainer_reports_.begin(Clock::now());
  if (status.ok() && is_server(task) && !server_report_)
    server_report_ = Clock::now() + kTimeAfterServers;
  if (status.ok() || !(failures_count_ || may_be_cause(status))) return;
  if (may_come_back(task)) {
    plan_restart(task);
  } else if (!failed_ || weight(status) > weight(tasks_[*failed_].status)) {
    failed_ = task;
  }
}

bool Attempt::may_come_back(size_t task) const {
  return may_restart_tasks() && tasks_[task].restarts < setting_.options.task_restarts &&
         setting_.cluster.tasks()[task].may_come_back();
}

void Attempt::plan_restart(size_t task) {
  TaskRun& run = tasks_[task];
  kill(-run.pid, SIGKILL);  // what is left of its group would be in the way of its successor
  const Clock::time_point now = Clock::now();
  const auto pause = run.restart_pause.after(now - run.started);
  run.next_start = now + pause;
  setting_.say(run.name, " ", run.status.describe(), "; ",
               started_again(pause, run.restarts + 1, setting_.options.task_restarts));
}

void Attempt::restart_tasks() {
  for (size_t task = 0; task < tasks_.size(); ++task) {
    TaskRun& run = tasks_[task];
    if (!run.next_start) continue;
    if (!may_restart_tasks()) {
      if (failures_count_) not_restarted_ = task;
      run.next_start.reset();
    } else if (is_due(run)) {
      for (TaskOutput& stream : run.streams) stream.finish();
      ++run.restarts;
      start(task);
      has_children_ = true;
    }
  }
}

bool Attempt::is_due(const TaskRun& run) {
  const bool has_left_any = kill(-run.pid, 0) == 0;
  return Clock::now() >= *run.next_start + (has_left_any ? kPatience : std::chrono::seconds(0));
}

void Attempt::note_task_restarts() const {
  std::vector<std::string> restarts;
  for (const TaskRun& run : tasks_)
    if (run.restarts > 0) restarts.push_back(str(run.name, " ", times(run.restarts)));
  if (!restarts.empty()) setting_.note("started again alone: ", comma_separated(restarts));
}

bool Attempt::may_be_cause(const ExitStatus& status) const {
  if (!failed_ || phase_ >= Phase::kKilling) return false;
  if (status.was_killed()) return !status.was_killed_by(SIGTERM);
  return was_aborted(tasks_[*failed_].status) && !status.resumable();
}

int Attempt::weight(const ExitStatus& status) const {
  if (status.was_killed_by(passed_on_)) return kWeightOfSignal;
  if (may_be_victim(status)) return kWeightOfConsequence;
  return status.resumable() ? kWeightOfResumable : kWeightOfCause;
}

void Attempt::advance() {
  if (phase_ >= Phase::kEnding) return;
  if (failed_ && weight_of_failure() == kWeightOfCause) {
    const std::string reason = describe(tasks_[*failed_]);
    tell(End{reason});
    end_with_others(reason);
  } else if (trainers_have_ended() && !setting_.agent) {
    warn_of_left_processes();
    end_all();
  } else if (failed_) {
    const TaskRun& run = tasks_[*failed_];
    settle({.reason = describe(run), .briefly = may_be_victim(run.status)});
  } else if (has_ended("chief:0")) {
    settle({.reason = "chief:0 has finished"});
  }
  if (setting_.agent && trainers_have_ended()) tell_that_trainers_have_ended();
}

void Attempt::tell_that_trainers_have_ended() {
  if (phase_ < Phase::kEnding && !std::exchange(told_of_trainers_, true)) tell(TrainersEnded{});
}

void Attempt::report_trainers() {
  if (phase_ != Phase::kRunning || !trainer_reports_.take(Clock::now())) return;
  std::vector<std::string> names;
  for (size_t task = 0; is_trainer(task); ++task) {
    const TaskRun& run = tasks_[task];
    if (run.ended) continue;
    names.push_back(run.name + (is_stopped(run.pid) ? " (stopped; SIGCONT lets it go on)" : ""));
  }
  if (!names.empty()) setting_.note("others have finished; waiting for ", comma_separated(names));
}

void Attempt::report_servers() {
  if (phase_ != Phase::kRunning || !server_report_ || Clock::now() < *server_report_) return;
  server_report_.reset();
  std::vector<std::string> servers, trainers;
  for (size_t task = 0; task < tasks_.size(); ++task) {
    const TaskRun& run = tasks_[task];
    if (is_server(task) && run.ended && run.status.ok()) servers.push_back(run.name);
    if (is_trainer(task) && !run.ended) trainers.push_back(run.name);
  }
  setting_.say(comma_separated(servers), " ended with 0 before ",
               trainers.empty() ? "the workers of other nodes" : comma_separated(trainers),
               ": unless these need no parameter server any more, the program does not serve where "
               "its task is ps (run_parameter_server), or has ended too early there");
}

void Attempt::settle(const Settle& order) {
  if (start_settling(order)) tell(order);
}

bool Attempt::start_settling(const Settle& order) {
  const Phase phase = order.briefly ? Phase::kAwaitingCause : Phase::kSettling;
  if (phase_ >= phase) return false;
  std::chrono::duration<double> time = setting_.options.grace;
  if (order.briefly) time = std::min<std::chrono::duration<double>>(time, kTimeForCause);
  setting_.note(order.reason, "; ", what_runs(), " may take ", time.count(), " s to end");
  phase_ = phase;
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
  deadline_ = deadline_ ? std::min(*deadline_, end) : end;
  return true;
}

std::map<size_t, pid_t> Attempt::left_processes() const {
  std::map<std::string, size_t> finished;
  for (size_t task = 0; is_trainer(task); ++task)
    if (tasks_[task].ended && tasks_[task].status.ok()) finished[str(task)] = task;
  std::map<size_t, pid_t> left;
  for (const pid_t pid : children()) {
    const auto origin = finished.find(variable_of(pid, "LOCAL_RANK"));
    if (origin != finished.end()) left.emplace(origin->second, pid);
  }
  return left;
}

void Attempt::warn_of_left_processes() const {
  const auto end = Clock::now() + kTimeForHelpers;
  auto left = left_processes();
  while (!left.empty() && Clock::now() < end) {
    std::this_thread::sleep_for(kHelperInterval);
    left = left_processes();
  }
  for (const auto& [task, pid] : left) {
    setting_.say(tasks_[task].name, " has ended with 0 and left processes behind, such as ",
                 printable(name_of(pid)), " (pid ", pid,
                 "), which are ended now; where they are the program, run it in the foreground "
                 "(setsid --wait)");
  }
}

void Attempt::end_all() {
  failures_count_ = false;
  send_to_all(SIGTERM);
  phase_ = Phase::kEnding;
  start_grace();
}

void Attempt::kill_all() {
  phase_ = Phase::kKilling;
  deadline_ = Clock::now() + kPatience;
  send_to_all(SIGKILL);
}

void Attempt::start_grace() {
  deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(setting_.options.grace);
}

void Attempt::check_deadline() {
  if (is_over()) return;
  if (phase_ == Phase::kKilling) send_to_all(SIGKILL);
  const bool is_in_vain = phase_ == Phase::kAwaitingCause && !any_may_end();
  if (!is_in_vain && (!deadline_ || Clock::now() < *deadline_)) return;
  switch (phase_) {
    case Phase::kRunning:
      time_out();
      break;
    case Phase::kSettling:
    case Phase::kAwaitingCause:
      if (setting_.timeout && *deadline_ == *setting_.timeout && !failed_) return time_out();
      setting_.note("ending ", what_runs());
      end_all();
      break;
    case Phase::kEnding:
      setting_.note("killing ", what_runs(), ", ", setting_.options.grace.count(),
                    " s after asking it to end");
      kill_all();
      break;
    case Phase::kKilling:
      for (const pid_t pid : children()) setting_.say("cannot end process ", pid);
      has_given_up_ = true;
  }
}

void Attempt::time_out() {
  setting_.say(too_long(setting_.options.timeout.count()), "; ending ", what_runs());
  timed_out_ = true;
  end_all();
}

void Attempt::send_to_all(int signal) {
  sent_to_.clear();
  for (const TaskRun& run : tasks_)
    if (!run.ended && send(-run.pid, signal)) sent_to_.insert(-run.pid);
  send_to_orphans(signal);  // and to tasks that have left their group
}

// Once: a second request to end is for many programs one not to save any more.
void Attempt::send_to_orphans(int signal) {
  for (const pid_t pid : children()) {
    if (sent_to_.contains(-getpgid(pid)) || !sent_to_.insert(pid).second) continue;
    send(pid, signal);
  }
}

bool Attempt::any_may_end() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const TaskRun& run) { return !run.ended && !is_stopped(run.pid); });
}

bool Attempt::has_ended(const std::string& name) const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [&](const TaskRun& run) { return run.name == name && run.ended; });
}

bool Attempt::is_trainer(size_t task) const {
  return task < static_cast<size_t>(setting_.cluster.num_trainers());
}

bool Attempt::is_server(size_t task) const { return setting_.cluster.tasks()[task].job == "ps"; }

bool Attempt::trainers_have_ended() const {
  return std::all_of(
      tasks_.begin(), tasks_.begin() + setting_.cluster.num_trainers(),
      [&](const TaskRun& run) { return run.ended && !(run.next_start && may_restart_tasks()); });
}

bool Attempt::awaits_start() const {
  return std::any_of(tasks_.begin(), tasks_.end(),
                     [](const TaskRun& run) { return run.next_start.has_value(); });
}

std::string Attempt::running() const {
  std::vector<std::string> names;
  for (const TaskRun& run : tasks_)
    if (!run.ended) names.push_back(run.name);
  return comma_separated(names);
}

std::string Attempt::what_runs() const {
  const std::string names = running();
  return names.empty() ? "what tasks left behind" : names;
}

}  // namespace cohort::launcher
