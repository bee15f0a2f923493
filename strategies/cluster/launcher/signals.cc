#include "strategies/cluster/launcher/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals() {
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how children end
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGQUIT, SIG_DFL);
  sigemptyset(&queued_);
  sigaddset(&queued_, SIGCHLD);
  for (const int signal : kPassedOn) {
    if (!is_ignored(signal)) sigaddset(&queued_, signal);
  }
  if (!is_ignored(SIGTSTP)) sigaddset(&queued_, SIGTSTP);
  sigset_t blocked = queued_;
  sigaddset(&blocked, SIGPIPE);
  sigaddset(&blocked, SIGTTOU);
  sigprocmask(SIG_BLOCK, &blocked, &original_);
  // A caller that blocks these signals does not mean the programs that we start.
  sigdelset(&original_, SIGCHLD);
  for (const int signal : kPassedOn) sigdelset(&original_, signal);
}

int Signals::wait() const {
  int signal = 0;
  while (sigwait(&queued_, &signal) != 0) {
  }
  return signal;
}

net::Descriptor Signals::queue() const {
  sigset_t taken = queued_;
  sigdelset(&taken, SIGTSTP);
  net::Descriptor queue(signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!queue) fail_system("cannot make a queue of signals");
  return queue;
}

int next_signal(const net::Descriptor& queue) {
  signalfd_siginfo information{};
  const ssize_t size = read(queue.get(), &information, sizeof(information));
  return size == sizeof(information) ? static_cast<int>(information.ssi_signo) : 0;
}

}  // namespace cohort::launcher
