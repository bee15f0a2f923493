#include "strategies/cluster/launcher/task_log.h"

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "strategies/cluster/launcher/system_error.h"

namespace cohort::launcher {
namespace {

// A new file in the place of one of that name, into which another job may still write.
net::Descriptor replace_file(const std::string& path) {
  for (;;) {
    if (unlink(path.c_str()) != 0 && errno != ENOENT) fail_system("cannot replace ", path);
    net::Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file) return file;
    if (errno != EEXIST) fail_system("cannot write ", path);
  }
}

}  // namespace

Log open_log(const std::string& log_dir, int restart, const Task& task, const char* stream) {
  if (log_dir.empty()) return {};
  const std::string folder = str(log_dir, "/attempt-", restart);
  create_folders(folder);
  const std::string path = str(folder, "/", task.job, "-", task.index, ".", stream);
  return {replace_file(path), path};
}

}  // namespace cohort::launcher
