#include "strategies/cluster/launcher/supervisor.h"

#include <algorithm>
#include <climits>
#include <csignal>
#include <poll.h>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/coordination/job_id.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/launcher/attempt.h"
#include "strategies/cluster/launcher/restart_pause.h"

namespace cohort::launcher {
namespace {

using Clock = std::chrono::steady_clock;

// Waits until something can be written, or for `timeout` milliseconds (-1: for ever), and writes.
// False when a signal asks for the end, or the guard is gone.
bool write_some(const Console& console, const net::Descriptor& signal_queue,
                const net::Descriptor& lifeline, int timeout) {
  std::vector<pollfd> events = {{signal_queue.get(), POLLIN, 0}, {lifeline.get(), POLLIN, 0}};
  console.watch(events);
  poll(events.data(), events.size(), timeout);
  const int signal = next_signal(signal_queue);
  if (events[1].revents || (signal != 0 && signal != SIGCHLD)) return false;
  console.write_some();
  return true;
}

// For poll(), which takes 24 days at most.
int milliseconds_until(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, INT_MAX));
}

// False when it was broken off.
bool wait(const Setting& setting, Clock::duration time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
    if (!write_some(setting.console, setting.signal_queue, setting.lifeline,
                    milliseconds_until(end))) {
      return false;
    }
  }
  return true;
}

void report(const Setting& setting, const char* what, const Attempt::TaskRun& run) {
  const auto& lines = run.last_lines->lines();
  setting.say(what, run.name, " (pid ", run.pid, ") ", run.describe_end(),
              lines.empty() ? "; nothing that it printed has arrived" : "; its last lines:");
  for (const auto& line : lines) setting.say("  | ", line);
}

void report_failure(const Setting& setting, const Attempt& attempt) {
  const Attempt::TaskRun& failed = attempt.tasks()[*attempt.failed()];
  report(setting, "failed: ", failed);
  for (const Attempt::TaskRun& run : attempt.tasks()) {
    if (&run == &failed) continue;
    setting.say("then ", run.name, " ", run.describe_end());
  }
}

std::string count(int restarts) { return str(restarts, restarts == 1 ? " restart" : " restarts"); }

// False when there is to be none.
bool wait_for_restart(const Setting& setting, Clock::duration pause, int restart) {
  if (setting.timeout && Clock::now() + pause >= *setting.timeout) {
    setting.note("no restart: ", too_long(setting.options.timeout.count()), " by then");
    return false;
  }
  setting.note(restarting(pause, restart, setting.options.restarts));
  return wait(setting, pause);
}

// Attempts until one succeeds, or no other is allowed; the exit code of the last.
int run_attempts(const Setting& setting) {
  RestartPause restart_pause;
  for (int restart = 0;; ++restart) {
    const auto began = Clock::now();
    Attempt attempt(setting, restart);
    attempt.run();
    if (attempt.timed_out()) {
      for (const Attempt::TaskRun& run : attempt.tasks()) report(setting, "timed out: ", run);
      return exit_code(Code::kDeadlineExceeded);
    }
    if (!attempt.failed()) {
      if (restart > 0) setting.note("finished after ", count(restart));
      return 0;
    }
    report_failure(setting, attempt);
    if (attempt.was_told_to_end() || restart == setting.options.restarts ||
        !wait_for_restart(setting, restart_pause.after(Clock::now() - began), restart + 1)) {
      if (restart > 0) setting.note("ended after ", count(restart));
      return attempt.tasks()[*attempt.failed()].status.code();
    }
  }
}

}  // namespace

int supervise(const Options& options, const std::string& program, const Environment& environment,
              const Signals& signals, const net::Descriptor& lifeline) {
  const net::InternetAddress loopback = net::InternetAddress::own_loopback();
  const NodePorts ports(options, loopback);
  const std::string given_id = coordination::given_job_id(process_environment);
  const LocalCluster cluster(options, ports,
                             {.job_id = given_id.empty() ? coordination::random_job_id() : given_id,
                              .nodes = {ports.describe(loopback.host())}});
  const net::Descriptor signal_queue = signals.queue();
  Console console;
  Setting setting = {options, cluster,      program,  environment,
                     signals, signal_queue, lifeline, console};
  if (options.timeout.count() > 0)
    setting.timeout = Clock::now() + std::chrono::duration_cast<Clock::duration>(options.timeout);
  try {
    const int code = run_attempts(setting);
    flush(options, console, signal_queue, lifeline, setting.timeout);
    return console.code_of_end(code);
  } catch (...) {
    flush(options, console, signal_queue, lifeline, setting.timeout);
    throw;
  }
}

void flush(const Options& options, const Console& console, const net::Descriptor& signal_queue,
           const net::Descriptor& lifeline, std::optional<Clock::time_point> timeout) {
  const auto grace = std::chrono::duration_cast<Clock::duration>(options.grace);
  if (timeout) *timeout = std::max(*timeout, Clock::now()) + grace;
  while (!console.is_empty()) {
    if (timeout && Clock::now() >= *timeout) return console.give_up();
    if (!write_some(console, signal_queue, lifeline, timeout ? milliseconds_until(*timeout) : -1))
      return;
  }
}

}  // namespace cohort::launcher
