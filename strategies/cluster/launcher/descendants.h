#pragma once

#include <chrono>
#include <sys/types.h>
#include <vector>

namespace cohort::launcher {

// From now on, processes below this one whose parents end become its children, so that none is
// lost.
void adopt_descendants();

// The children of this process, adopted ones and those that ended unnoticed (zombies) too.
std::vector<pid_t> children();

// Whether a process is stopped, as by SIGSTOP.
bool is_stopped(pid_t pid);

// Stops all processes below this one by SIGSTOP, parents first, so that none is started meanwhile,
// and returns them.
std::vector<pid_t> stop_descendants();

// Kills all processes below this one, which must have called adopt_descendants(). Returns those
// that still lived after `patience`: another user's, or ones stuck in the kernel.
std::vector<pid_t> kill_descendants(std::chrono::milliseconds patience);

}  // namespace cohort::launcher
