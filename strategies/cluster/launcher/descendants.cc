#include "strategies/cluster/launcher/descendants.h"

#include <csignal>
#include <fstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>

#include "core/base/error.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

// Buries all children that have ended; false when none are left.
bool any_child_left() {
  pid_t pid = 0;
  do {
    pid = waitpid(-1, nullptr, WNOHANG);
  } while (pid > 0);
  return pid == 0;
}

}  // namespace

void adopt_descendants() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_system("cannot adopt processes");
}

std::vector<pid_t> children() {
  std::ifstream file(str("/proc/self/task/", getpid(), "/children"));
  std::vector<pid_t> out;
  for (pid_t pid = 0; file >> pid;) out.push_back(pid);
  return out;
}

std::vector<pid_t> kill_descendants(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  // The children of a killed process are adopted, and killed in the next round.
  while (any_child_left()) {
    auto living = children();
    if (std::chrono::steady_clock::now() > deadline) return living;
    for (const pid_t pid : living) kill(pid, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

}  // namespace cohort::launcher
