#include "strategies/cluster/net/port_holder.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>
#include <unistd.h>

#include "core/base/error.h"

namespace cohort::net {
namespace {

namespace fs = std::filesystem;

// What /proc/PID/fd shows for the sockets that listen on a port: "socket:[1234]". The files are
// tables of proc(5): slot, local address as HEX:HEX, remote address, state, three about queues and
// timers, user, time-out, inode.
std::set<std::string> listening_sockets(int port) {
  constexpr const char* kListening = "0A";
  std::set<std::string> sockets;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      std::istringstream fields(line);
      std::string local, state, inode, other;
      fields >> other >> local >> other >> state >> other >> other >> other >> other >> other >>
          inode;
      const size_t colon = local.find(':');
      if (!fields || state != kListening || colon == std::string::npos) continue;
      if (std::strtol(local.c_str() + colon + 1, nullptr, 16) == port)
        sockets.insert("socket:[" + inode + "]");
    }
  }
  return sockets;
}

bool holds_any(const fs::path& process, const std::set<std::string>& sockets) {
  std::error_code ignored;  // it has ended, or does so meanwhile, or is somebody else's
  fs::directory_iterator descriptor(process / "fd", ignored);
  for (const fs::directory_iterator end; descriptor != end; descriptor.increment(ignored))
    if (sockets.contains(fs::read_symlink(*descriptor, ignored).string())) return true;
  return false;
}

// As it calls itself, which may be any bytes.
std::string name_of(const fs::path& process) {
  std::string name;
  std::ifstream file(process / "comm");
  std::getline(file, name);
  for (char& c : name)
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';
  return name;
}

}  // namespace

std::string port_holder(int port) {
  const auto sockets = listening_sockets(port);
  if (sockets.empty()) return "";
  std::error_code ignored;
  fs::directory_iterator entry("/proc", ignored);
  for (const fs::directory_iterator end; entry != end; entry.increment(ignored)) {
    const fs::path& process = entry->path();
    const std::string id = process.filename().string();
    if (std::all_of(id.begin(), id.end(), [](unsigned char c) { return std::isdigit(c); }) &&
        holds_any(process, sockets))
      return str("process ", id, " (", name_of(process), ")");
  }
  return "";
}

std::string port_in_use(int port) {
  const std::string holder = port_holder(port);
  const bool is_own = holder.starts_with(str("process ", getpid(), " "));
  return str("port ", port, " is in use, by ", holder.empty() ? "" : holder + ", ",
             is_own ? "which is this one: jobs that it is in at the same time need a port each"
                    : "another job or a process that an old run left behind");
}

}  // namespace cohort::net
