#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace cohort::testing {

// A file system of 1 MiB, in memory, at a folder. This thread and those that it starts have it, and
// nobody else sees it.
class SmallDisk {
 public:
  static constexpr int64_t kPageBytes = 4096, kPages = (1 << 20) / kPageBytes;

  // Why this process can have none; empty where it can. For its first thread, before there are
  // others.
  static const std::string& refusal() {
    static const std::string reason = leave_mounts_of_others();
    return reason;
  }

  explicit SmallDisk(std::string folder) : folder_(std::move(folder)) {
    require(mount("tmpfs", folder_.c_str(), "tmpfs", 0, "size=1m"), "mount");
  }
  ~SmallDisk() { umount2(folder_.c_str(), MNT_DETACH); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  // A file "filler" takes so many pages, or all that the others leave.
  void fill(int64_t pages) const {
    const int file = open((folder_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    require(file, "open");
    const int64_t taken = std::min(pages, free_pages());
    errno = taken > 0 ? posix_fallocate(file, 0, taken * kPageBytes) : 0;
    require(errno == 0 ? close(file) : -1, "fill");
  }
  // Nobody may have a file of it open for writing.
  void set_read_only(bool on) const {
    const unsigned long flags = MS_REMOUNT | MS_BIND | (on ? MS_RDONLY : 0);
    require(mount("none", folder_.c_str(), nullptr, flags, nullptr), "remount");
  }

 private:
  static void require(int result, const char* action) {
    if (result < 0)
      throw std::system_error(errno, std::generic_category(), std::string("small disk: ") + action);
  }

  static std::string leave_mounts_of_others() {
    const auto user = geteuid();
    const auto group = getegid();
    if (unshare(CLONE_NEWNS) != 0) {
      if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return std::string("no mounts of its own: ") + std::strerror(errno);
      std::ofstream("/proc/self/setgroups") << "deny";
      std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
      std::ofstream("/proc/self/gid_map") << "0 " << group << " 1";
    }
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      return std::string("mounts cannot be kept from others: ") + std::strerror(errno);
    return "";
  }

  int64_t free_pages() const {
    struct statvfs status;
    require(statvfs(folder_.c_str(), &status), "inspect");
    return static_cast<int64_t>(status.f_bavail * status.f_frsize) / kPageBytes;
  }

  const std::string folder_;
};

}  // namespace cohort::testing
