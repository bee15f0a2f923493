#pragma once

#include <string>

namespace cohort::launcher {

// Fails with what `error`, the errno of who would have become the program at `path`, means. The
// system calls a script missing whose interpreter is: then that is said, and which.
[[noreturn]] void fail_to_run(int error, const std::string& path);

}  // namespace cohort::launcher
