#pragma once

#include <chrono>
#include <string>
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

// The name of a process, as ps(1) shows it; "" where there is no such process.
std::string name_of(pid_t pid);

// What a process found in its environment for `variable` when it became its program; "" without
// one, and of one that has ended.
std::string variable_of(pid_t pid, const std::string& variable);

// Stops all processes below this one by SIGSTOP, parents first, so that none is started meanwhile,
// and returns them.
std::vector<pid_t> stop_descendants();

// Kills all processes below this one, which must have called adopt_descendants(). Returns those
// that still lived after `patience`: another user's, or ones stuck in the kernel.
std::vector<pid_t> kill_descendants(std::chrono::milliseconds patience);

}  // namespace cohort::launcher
