#include "strategies/cluster/launcher/guard.h"

#include <csignal>
#include <cstdio>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

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

// What Ctrl-Z asks for: stops all processes below this one, then this one, at which the shell
// looks, until that is continued, and then continues the others. Where there is no shell that could
// do so, the kernel does not stop it. Its own stop waits from the beginning, so that a SIGCONT
// which comes before it takes it back, as ever.
void stop_for_now() {
  std::raise(SIGTSTP);
  const std::vector<pid_t> stopped = stop_descendants();
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // stops here
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
}

ExitStatus watch(const Signals& signals, pid_t child) {
  for (;;) {
    const int signal = signals.wait();
    if (signal == SIGTSTP) {
      stop_for_now();
    } else if (signal != SIGCHLD) {
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
    prctl(PR_SET_PDEATHSIG, SIGCONT);  // stopped, it could not notice that the guard is gone
    lifeline.write_end.reset();
    // A group of its own: what the terminal sends to the guard's group comes through the guard,
    // once.
    setpgid(0, 0);
    return body(lifeline.read_end);
  }
  // Another name than the supervisor's: who kills by name (pkill -9) is to meet one of the two.
  prctl(PR_SET_NAME, "cohort-guard");
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
