#pragma once

#include <fcntl.h>
#include <unistd.h>

#include "strategies/cluster/launcher/system_error.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

struct Pipe {
  net::Descriptor read_end, write_end;
};

// A pipe that no other program inherits.
inline Pipe make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) fail_system("cannot make a pipe");
  return {net::Descriptor(ends[0]), net::Descriptor(ends[1])};
}

}  // namespace cohort::launcher
