#include "core/train/callbacks/folder.h"

#include <string>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::callbacks {

void require_folder(std::string_view callback, const std::filesystem::path& folder) {
  const std::string path = folder.empty() ? "." : folder.string();
  try {
    create_folders(path);
    if (::access(path.c_str(), W_OK | X_OK) != 0) fail_errno("write to the folder", path);
  } catch (const Error& error) {
    throw error.with_context(callback);
  }
}

void require_folder_of_chief(Training& training, std::string_view callback,
                             const std::filesystem::path& folder) {
  const Strategy& strategy = training.model().strategy();
  // These do not wait for one another.
  if (strategy.input_context().independent && !strategy.is_chief()) return;
  from_chief(strategy.workers(), str("a folder for ", callback), [&] {
    require_folder(callback, folder);
    return std::string();
  });
}

}  // namespace cohort::callbacks
