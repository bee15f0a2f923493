#pragma once

#include <string>
#include <vector>

namespace cohort::launcher {

// Becomes the program at `path`, with `arguments`, of which the first is its name, and
// `environment`, "NAME=value" of each. A text that names no interpreter is one for /bin/sh, as it
// is for execvp(3), which takes all for a text that the system cannot run. Returns only where there
// is no becoming it: the errno of why.
int become_program(const std::string& path, const std::vector<std::string>& arguments,
                   const std::vector<std::string>& environment);

// Fails with what `error`, the errno of who would have become the program at `path`, means. The
// system calls a script missing whose interpreter is: then that is said, and which. A program for
// another machine is called that.
[[noreturn]] void fail_to_run(int error, const std::string& path);

}  // namespace cohort::launcher
