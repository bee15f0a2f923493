#include "strategies/cluster/launcher/node_supervisor.h"

#include <csignal>
#include <optional>
#include <poll.h>
#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/launcher/agent.h"
#include "strategies/cluster/launcher/attempt.h"
#include "strategies/cluster/launcher/supervisor.h"

namespace cohort::launcher {
namespace {

// How long the rendezvous may take to tell the last node that the job is over.
constexpr std::chrono::seconds kFarewellTime(10);

using Clock = std::chrono::steady_clock;

Clock::time_point in(std::chrono::duration<double> time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

class NodeSupervisor {
 public:
  NodeSupervisor(const Options& options, const std::string& program, const Environment& environment,
                 const Signals& signals, const net::Descriptor& lifeline)
      : options_(options),
        program_(program),
        environment_(environment),
        signals_(signals),
        lifeline_(lifeline),
        signal_queue_(signals.queue()),
        agent_(options, [this](const std::string& line) { say(line); }) {}

  int run() {
    const int code = take_part();
    say_farewell();
    flush(options_, console_, signal_queue_, lifeline_, timeout_);
    return console_.code_of_end(code);
  }

 private:
  int take_part() {
    try {
      while (const auto round = await_start()) run_round(*round);
      return *agent_.job_code();
    } catch (const Error& error) {
      agent_.leave(exit_code(error.code()), error.message());
      say_farewell();
      flush(options_, console_, signal_queue_, lifeline_, timeout_);
      throw;
    }
  }

  // Nothing when the job is over, or signals have ended this node's part in it.
  std::optional<Round> await_start() {
    for (;;) {
      while (const auto order = agent_.next_order()) {
        if (const auto* start = std::get_if<Start>(&*order)) return start->round;
      }
      if (agent_.job_code()) return std::nullopt;
      if (!agent_.loss().empty()) fail(Code::kUnavailable, agent_.loss());
      wait_for_events();
      if (const int signal = take_signal()) handle_signal(signal);
    }
  }

  void handle_signal(int signal) {
    const bool again = std::exchange(was_told_to_end_, true);
    if (agent_.has_joined() && !again) {
      note("got " + signal_name(signal) +
           "; asking the rendezvous to end the job, or to go on without this node");
      agent_.tell(Signal{signal, false, ""});
    } else {
      note("ending by " + signal_name(signal));
      agent_.leave(128 + signal, "it got " + signal_name(signal));
    }
  }

  void run_round(const Round& round) {
    if (!timeout_ && options_.timeout.count() > 0) timeout_ = in(options_.timeout);
    const LocalCluster cluster(options_, agent_.ports(), round);
    const Setting setting = {options_,      cluster,   program_, environment_, signals_,
                             signal_queue_, lifeline_, console_, &agent_};
    Attempt attempt(setting, round.restart);
    attempt.run();
    agent_.tell(report(attempt));
  }

  static Ended report(const Attempt& attempt) {
    Ended ended;
    for (size_t i = 0; i < attempt.tasks().size(); ++i) {
      const Attempt::TaskRun& run = attempt.tasks()[i];
      if (attempt.failed() == i) {
        const auto& lines = run.last_lines->lines();
        ended.failures.push_back(
            {.what = str(run.name, " (pid ", run.pid, ") ", run.describe_end()),
             .code = run.status.code(),
             .weight = attempt.weight_of_failure(),
             .last_lines = {lines.begin(), lines.end()}});
      } else {
        ended.ends.push_back(str(run.name, " ", run.describe_end()));
      }
    }
    return ended;
  }

  // The rendezvous stays until all nodes know that the job is over.
  void say_farewell() {
    const auto deadline = Clock::now() + kFarewellTime;
    while (!agent_.is_done() && Clock::now() < deadline) {
      wait_for_events();
      const int signal = take_signal();
      if (signal == SIGINT || signal == SIGQUIT) return;
    }
  }

  void wait_for_events() {
    std::vector<pollfd> events = {{signal_queue_.get(), POLLIN, 0}, {lifeline_.get(), POLLIN, 0}};
    console_.watch(events);
    agent_.watch(events);
    poll(events.data(), events.size(), static_cast<int>(kStepInterval.count()));
    if (events[1].revents) fail(Code::kAborted, "cohort-run was killed");
    console_.write_some();
    agent_.step();
  }

  // The next signal that asks for the end; 0 when there is none.
  int take_signal() {
    int signal = 0;
    do {
      signal = next_signal(signal_queue_);
    } while (signal == SIGCHLD);
    return signal;
  }

  void say(const std::string& line) { console_.errors->append(str("cohort-run: ", line, "\n")); }
  // What --quiet does not want.
  void note(const std::string& line) {
    if (!options_.quiet) say(line);
  }

  const Options& options_;
  const std::string& program_;
  const Environment& environment_;
  const Signals& signals_;
  const net::Descriptor& lifeline_;
  const net::Descriptor signal_queue_;
  Console console_;
  Agent agent_;
  bool was_told_to_end_ = false;
  std::optional<Clock::time_point> timeout_;  // of a run that began with this node's first tasks
};

}  // namespace

int supervise_node(const Options& options, const std::string& program,
                   const Environment& environment, const Signals& signals,
                   const net::Descriptor& lifeline) {
  return NodeSupervisor(options, program, environment, signals, lifeline).run();
}

}  // namespace cohort::launcher
