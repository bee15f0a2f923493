#pragma once

#include <optional>
#include <sched.h>
#include <string>
#include <sys/types.h>
#include <vector>

#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// A program to run.
struct Program {
  std::string path;
  std::vector<std::string> arguments;    // the first is its name
  std::vector<std::string> environment;  // "NAME=value" of each
  std::optional<cpu_set_t> cores = {};   // on which it runs; without them on those of this process
};

// A process that this one started. Whoever starts it has to wait for it.
struct Child {
  pid_t pid = 0;
  net::Descriptor output, errors;  // what it prints; reads do not block
};

// Starts `program` as the leader of a process group, with an empty input, and with `inherited` (if
// open) under the same number. The kernel kills it when this process dies. Returns when the program
// runs; an error when it cannot be run.
Child start(const Program& program, const net::Descriptor& inherited, const Signals& signals);

}  // namespace cohort::launcher
