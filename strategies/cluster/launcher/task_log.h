#pragma once

#include <string>

#include "strategies/cluster/launcher/task.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// A file that repeats what a task prints; none when it is not open.
struct Log {
  net::Descriptor file;
  std::string path;
};

// That of a task's `stream` ("stdout") after `restart` restarts of all, in a folder of `log_dir`;
// none where that is "". Errors: that it cannot be written.
Log open_log(const std::string& log_dir, int restart, const Task& task, const char* stream);

}  // namespace cohort::launcher
