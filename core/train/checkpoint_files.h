#pragma once

#include <compare>
#include <filesystem>
#include <set>
#include <string>

namespace cohort {

// One state of a file with a checkpoint: it may be written again under the same name.
struct CheckpointFile {
  std::filesystem::file_time_type written;
  std::string path;
  auto operator<=>(const CheckpointFile&) const = default;
};

// The files of a folder that end in ".safetensors", the one written first in front, as they are in
// this process. None where there is no such folder, or it cannot be read.
std::set<CheckpointFile> checkpoint_files(const std::string& folder);

}  // namespace cohort
