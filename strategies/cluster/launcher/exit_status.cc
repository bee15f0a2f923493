#include "strategies/cluster/launcher/exit_status.h"

#include <cstring>
#include <sys/wait.h>

#include "core/base/error.h"

namespace cohort::launcher {

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name ? str("SIG", name) : str("signal ", signal);
}

ExitStatus::ExitStatus(const siginfo_t& ended)
    : status_(ended.si_code == CLD_EXITED ? W_EXITCODE(ended.si_status, 0) : ended.si_status) {
  if (ended.si_code == CLD_DUMPED) status_ |= WCOREFLAG;
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
  if (!reason_.empty()) return str("was killed by ", signal_name(signal), ": ", reason_);
  const char* meaning = sigdescr_np(signal);
  return str("was killed by ", signal_name(signal), meaning ? str(" (", meaning, ")") : "",
             WCOREDUMP(status_) ? ", core dumped" : "");
}

}  // namespace cohort::launcher
