#include "strategies/parameter_server/folder_lock.h"

#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::parameter_server {
namespace {

constexpr std::chrono::milliseconds kTimeToEnd(1000), kLookInterval(10);

bool has_no_locks() {
  return errno == EINVAL || errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP;
}

net::Descriptor open_lock(const std::string& folder) {
  create_folders(folder);
  const std::string path = folder + "/lock";
  net::Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file) fail_errno("open", path);
  return file;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : file_(open_lock(folder)) {
  const auto end = std::chrono::steady_clock::now() + kTimeToEnd;
  while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && !has_no_locks()) {
    if (errno != EWOULDBLOCK && errno != EINTR) fail_errno("lock", folder + "/lock");
    if (std::chrono::steady_clock::now() >= end)
      fail(Code::kFailedPrecondition, "another parameter server keeps its snapshots in ", folder,
           ", or has not ended yet: each needs a folder of its own");
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace cohort::parameter_server
