#pragma once

#include <functional>

namespace cohort {

// Prepares the process: from now on the first interrupt (SIGINT, Ctrl-C) asks whatever trains to
// stop after its present step; the second ends the process at once, as without init().
void init();
// Whether an interrupt has arrived since init(). Thread-safe.
bool interrupted();

// The body of main(): calls init() and `body`, and returns the exit code of the process. A
// cohort::Error is printed as one line on stderr and gives exit_code(error.code()); any other
// exception gives 1.
int run_main(const std::function<void()>& body);

}  // namespace cohort
