#include "strategies/collective/host/process_identity.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <poll.h>
#include <sstream>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace cohort {
namespace {

// Field 22 of /proc/PID/stat, counted after the name, which may hold anything but ends at the last
// parenthesis.
std::optional<uint64_t> start_time(int64_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  if (!std::getline(file, text)) return std::nullopt;
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  constexpr int kFieldsAfterName = 20;
  for (int i = 0; i < kFieldsAfterName; ++i)
    if (!(fields >> field)) return std::nullopt;
  return std::strtoull(field.c_str(), nullptr, 10);
}

std::string link_target(const char* path) {
  char target[256];
  const ssize_t length = readlink(path, target, sizeof(target));
  return length > 0 ? std::string(target, static_cast<size_t>(length)) : "unknown";
}

}  // namespace

ProcessIdentity this_process() {
  const int64_t pid = getpid();
  return {pid, start_time(pid).value_or(0)};
}

bool may_map_memory_of(const ProcessIdentity& process) {
  return start_time(process.pid) == process.start_time &&
         access(str("/proc/", process.pid, "/fd/.").c_str(), X_OK) == 0;
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!(file >> boot)) boot = "unknown";
  return str(boot, "/", link_target("/proc/self/ns/pid"), "/", link_target("/proc/self/ns/net"));
}

ProcessWatch::ProcessWatch(const ProcessIdentity& process)
    : descriptor_(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(process.pid), 0))) {
  if (descriptor_ < 0)
    fail(errno == ESRCH || errno == EINVAL ? Code::kUnavailable : Code::kResourceExhausted,
         "cannot watch process ", process.pid, ": ", std::strerror(errno));
  if (const auto started = start_time(process.pid); started && *started == process.start_time)
    return;
  close(descriptor_);
  fail(Code::kUnavailable, "process ", process.pid, " has ended");
}

ProcessWatch::~ProcessWatch() {
  if (descriptor_ >= 0) close(descriptor_);
}

ProcessWatch::ProcessWatch(ProcessWatch&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

bool ProcessWatch::ended() const {
  pollfd poll_set{descriptor_, POLLIN, 0};
  return poll(&poll_set, 1, 0) == 1;
}

}  // namespace cohort
