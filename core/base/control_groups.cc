#include "core/base/control_groups.h"

#include <array>
#include <fstream>
#include <string_view>

#include "core/base/error.h"

namespace cohort {
namespace {

constexpr size_t kLongestLine = 8192;  // twice that of a path

bool names(const std::string& controllers, const std::string& controller) {
  return ("," + controllers + ",").find("," + controller + ",") != std::string::npos;
}

void add_from(const std::string& mount, std::string_view path, std::vector<std::string>& folders) {
  for (std::string group(path);; group.resize(group.rfind('/'))) {
    folders.push_back(mount + group);
    if (group.find('/') == std::string::npos) return;
  }
}

}  // namespace

std::vector<std::string> control_groups(const std::string& controller, const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  std::vector<std::string> folders;
  std::ifstream file(root + "/proc/self/cgroup");
  std::array<char, kLongestLine> buffer;
  // "NUMBER:CONTROLLERS:PATH", of version 2 without controllers; up to a line that is too long.
  while (file.getline(buffer.data(), buffer.size())) {
    const std::string line = buffer.data();
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) add_from(mounts, path, folders);
    if (names(controllers, controller)) add_from(str(mounts, "/", controller), path, folders);
  }
  return folders;
}

}  // namespace cohort
