#include "strategies/parameter_server/folder_sync.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "core/base/system_error.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::parameter_server {

void sync_folder(const std::string& path) {
  const net::Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (!folder || (::fsync(folder.get()) != 0 && errno != EINVAL)) fail_errno("sync", path);
}

}  // namespace cohort::parameter_server
