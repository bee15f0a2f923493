#include "core/train/callbacks/folder.h"

#include <functional>
#include <string>
#include <system_error>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

namespace cohort::callbacks {
namespace {

// Has the chief check, and all who train in step throw its error.
void check_on_chief(Training& training, std::string_view callback,
                    const std::function<void()>& check) {
  if (training.leaves_to_chief()) return;  // and does not wait for it
  from_chief(training.model().strategy().workers(), str("a folder for ", callback), [&] {
    check();
    return std::string();
  });
}

}  // namespace

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
  check_on_chief(training, callback, [&] { require_folder(callback, folder); });
}

void require_file_of_chief(Training& training, std::string_view callback,
                           const std::filesystem::path& file) {
  check_on_chief(training, callback, [&] {
    require_folder(callback, file.parent_path());
    std::error_code unknown;
    if (std::filesystem::is_directory(file, unknown))
      invalid(callback, ": ", file.string(), " is a folder; give the path of a file");
    if (unknown == std::errc::filename_too_long)
      invalid(callback, ": the name of the file ", file.string(), " is too long for its folder");
  });
}

void require_file_name(std::string_view callback, const std::filesystem::path& file) {
  if (!file.has_filename())
    invalid(callback, ": the path \"", file.string(), "\" ends without the name of a file");
}

void require_directory_name(std::string_view callback, const std::filesystem::path& directory) {
  if (directory.empty()) invalid(callback, ": the directory is empty; \".\" is the current one");
}

}  // namespace cohort::callbacks
