#include "strategies/cluster/launcher/guard.h"

#include <csignal>
#include <cstdio>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

#include "strategies/cluster/launcher/descendants.h"
#include "strategies/cluster/launcher/exit_status.h"
#include "strategies/cluster/launcher/pipe.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

// Buries children that have ended, and says how `child` did if it was among them.
std::optional<ExitStatus> bury(pid_t child) {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid == child) return ExitStatus(status);
  }
  return std::nullopt;
}

ExitStatus watch(const Signals& signals, pid_t child) {
  for (;;) {
    const int signal = signals.wait();
    if (signal != SIGCHLD) {
      kill(child, signal);
    } else if (const auto status = bury(child)) {
      return *status;
    }
  }
}

}  // namespace

int guarded(const Signals& signals,
            const std::function<int(const net::Descriptor& lifeline)>& body) {
  adopt_descendants();
  Pipe lifeline = make_pipe();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) fail_system("cannot start the supervisor");
  if (child == 0) {
    adopt_descendants();
    lifeline.write_end.reset();
    // A group of its own: what the terminal sends to the guard's group comes through the guard,
    // once.
    setpgid(0, 0);
    return body(lifeline.read_end);
  }
  const ExitStatus status = watch(signals, child);
  if (status.was_killed()) {
    std::fprintf(stderr, "cohort-run: the supervisor %s; ending what it started\n",
                 status.describe().c_str());
  }
  for (const pid_t pid : kill_descendants(std::chrono::seconds(5))) {
    std::fprintf(stderr, "cohort-run: cannot end process %d\n", pid);
  }
  return status.code();
}

}  // namespace cohort::launcher
