#include "core/train/callbacks/folder.h"

#include <string>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::callbacks {

void prepare_folder(Training& training, std::string_view callback,
                    const std::filesystem::path& folder) {
  if (!training.model().strategy().is_chief()) return;
  const std::string path = folder.empty() ? "." : folder.string();
  try {
    create_folders(path);
    if (::access(path.c_str(), W_OK | X_OK) != 0) fail_errno("write to the folder", path);
  } catch (const Error& error) {
    throw error.with_context(callback);
  }
}

}  // namespace cohort::callbacks
