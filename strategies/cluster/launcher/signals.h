#pragma once

#include <csignal>

#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// Those that ask for the end.
inline constexpr int kPassedOn[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU};

// From its making on, this process takes its signals from a queue: SIGCHLD, those that are
// to be passed on, and SIGTSTP. They stay ignored where they were (nohup), but for SIGINT and
// SIGQUIT, which shells set to be ignored for whatever a script starts in the background. SIGPIPE
// and SIGTTOU are blocked: writes report errors instead. For a process of one thread.
class Signals {
 public:
  Signals();

  // Waits for a signal and returns its number.
  int wait() const;
  // A descriptor that is readable while signals but SIGTSTP are queued. It must be made by the
  // process that reads it.
  net::Descriptor queue() const;
  // To be called in a new process before it becomes another program.
  void restore() const { sigprocmask(SIG_SETMASK, &original_, nullptr); }

 private:
  sigset_t original_, queued_;
};

// Takes the next signal from the queue; 0 when it is empty.
int next_signal(const net::Descriptor& queue);

}  // namespace cohort::launcher
