#include "strategies/cluster/launcher/supervisor.h"

#include <csignal>
#include <poll.h>

#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/launcher/attempt.h"

namespace cohort::launcher {
namespace {

void report_failure(const Setting& setting, const Attempt& attempt) {
  const Attempt::TaskRun& failed = attempt.tasks()[*attempt.failed()];
  const auto& lines = failed.last_lines->lines();
  setting.note("failed: ", failed.name, " (pid ", failed.pid, ") ", failed.status.describe(),
               lines.empty() ? " and printed nothing" : "; its last lines:");
  for (const auto& line : lines) setting.note("  | ", line);
  for (const Attempt::TaskRun& run : attempt.tasks()) {
    if (&run == &failed) continue;
    setting.note("then ", run.name, " ", run.ended ? run.status.describe() : "could not be ended");
  }
}

std::string count(int restarts) { return str(restarts, restarts == 1 ? " restart" : " restarts"); }

// Attempts until one succeeds, or no other is allowed; the exit code of the last.
int run_attempts(const Setting& setting) {
  for (int restart = 0;; ++restart) {
    Attempt attempt(setting, restart);
    attempt.run();
    if (!attempt.failed()) {
      if (restart > 0) setting.note("finished after ", count(restart));
      return 0;
    }
    report_failure(setting, attempt);
    const int allowed = setting.options.restarts;
    if (attempt.was_told_to_end() || restart == allowed) {
      if (restart > 0) setting.note("ended after ", count(restart));
      return attempt.tasks()[*attempt.failed()].status.code();
    }
    setting.note("restarting all tasks (restart ", restart + 1, " of ", allowed, ")");
  }
}

}  // namespace

int supervise(const Options& options, const std::string& program, const Environment& environment,
              const Signals& signals, const net::Descriptor& lifeline) {
  const net::InternetAddress loopback;
  const NodePorts ports(options, loopback);
  const LocalCluster cluster(
      options, ports,
      {.job_id = coordination::random_job_id(), .nodes = {ports.describe(loopback.host())}});
  const net::Descriptor signal_queue = signals.queue();
  Console console;
  const Setting setting = {options, cluster,      program,  environment,
                           signals, signal_queue, lifeline, console};
  const int code = run_attempts(setting);
  flush(console, signal_queue, lifeline);
  return code;
}

void flush(const Console& console, const net::Descriptor& signal_queue,
           const net::Descriptor& lifeline) {
  while (!console.output->is_empty() || !console.errors->is_empty()) {
    pollfd events[] = {
        {signal_queue.get(), POLLIN, 0},
        {lifeline.get(), POLLIN, 0},
        {console.output->is_empty() ? -1 : console.output->descriptor(), POLLOUT, 0},
        {console.errors->is_empty() ? -1 : console.errors->descriptor(), POLLOUT, 0}};
    poll(events, std::size(events), -1);
    const int signal = next_signal(signal_queue);
    if (events[1].revents || (signal != 0 && signal != SIGCHLD)) return;
    console.output->write_some();
    console.errors->write_some();
  }
}

}  // namespace cohort::launcher
