#pragma once

#include <filesystem>
#include <string_view>

#include "core/train/training.h"

namespace cohort::callbacks {

// When training begins, so that a path that cannot be written to does not cost an epoch: makes
// `folder` where it is missing. Where that fails, or it may not be written to, an Error begins with
// `callback`. "" is the current folder.
void require_folder(std::string_view callback, const std::filesystem::path& folder);

// The same on the chief, which alone writes; all workers that train in step, which have to call it,
// throw its error.
void require_folder_of_chief(Training& training, std::string_view callback,
                             const std::filesystem::path& folder);

// The same for the folder of `file`; kInvalidArgument where that is a folder itself, or has a name
// that is too long.
void require_file_of_chief(Training& training, std::string_view callback,
                           const std::filesystem::path& file);

// When a callback is made: kInvalidArgument for a path that cannot be a file's, as "" and "a/".
void require_file_name(std::string_view callback, const std::filesystem::path& file);

// When a callback is made: kInvalidArgument for "".
void require_directory_name(std::string_view callback, const std::filesystem::path& directory);

}  // namespace cohort::callbacks
