#include "strategies/parameter_server/folder_sync.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "core/base/error.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::parameter_server {

void sync_folder(const std::string& path) {
  const net::Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some network file systems cannot sync a folder and say so with EINVAL.
  if (!folder || (::fsync(folder.get()) != 0 && errno != EINVAL))
    fail(Code::kResourceExhausted, "cannot sync ", path, ": ", std::strerror(errno));
}

}  // namespace cohort::parameter_server
