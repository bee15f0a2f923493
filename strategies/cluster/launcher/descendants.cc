#include "strategies/cluster/launcher/descendants.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

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

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> out;
  std::error_code gone;  // threads and processes may end meanwhile
  std::filesystem::directory_iterator thread(str("/proc/", pid, "/task"), gone);
  for (const std::filesystem::directory_iterator end; thread != end; thread.increment(gone)) {
    std::ifstream file(thread->path() / "children");
    for (pid_t child = 0; file >> child;) out.push_back(child);
  }
  return out;
}

}  // namespace

void adopt_descendants() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail_system("cannot adopt processes");
}

std::vector<pid_t> children() { return children_of(getpid()); }

bool is_stopped(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // of a name in which there may be one, too
  return name_end != std::string::npos && text.substr(name_end, 3) == ") T";
}

std::string name_of(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/comm"));
  std::string name;
  std::getline(file, name);
  return name;
}

std::string variable_of(pid_t pid, const std::string& variable) {
  std::ifstream file(str("/proc/", pid, "/environ"), std::ios::binary);
  const std::string start = variable + "=";
  for (std::string entry; std::getline(file, entry, '\0');)
    if (entry.starts_with(start)) return entry.substr(start.size());
  return "";
}

std::vector<pid_t> stop_descendants() {
  std::vector<pid_t> stopped = {getpid()};
  for (size_t i = 0; i < stopped.size(); ++i) {
    for (const pid_t pid : children_of(stopped[i])) {
      kill(pid, SIGSTOP);
      stopped.push_back(pid);
    }
  }
  stopped.erase(stopped.begin());
  return stopped;
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
