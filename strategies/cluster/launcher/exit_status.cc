#include "strategies/cluster/launcher/exit_status.h"

#include <csignal>
#include <cstring>
#include <sys/wait.h>

#include "core/base/error.h"

namespace cohort::launcher {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? str("SIG", name) : str("signal ", signal);
}

bool ExitStatus::was_killed() const { return WIFSIGNALED(status_); }

int ExitStatus::code() const {
  return was_killed() ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

std::string ExitStatus::describe() const {
  if (!was_killed()) {
    return str("exited with code ", code(), resumable() ? " (resumable)" : "");
  }
  const int signal = WTERMSIG(status_);
  const char* meaning = sigdescr_np(signal);
  return str("was killed by ", signal_name(signal), meaning ? str(" (", meaning, ")") : "",
             WCOREDUMP(status_) ? ", core dumped" : "");
}

}  // namespace cohort::launcher
