#pragma once

#include <compare>
#include <filesystem>
#include <functional>
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

// Has `write` write the file `path`, and makes it the last one of its folder, whatever the clock
// says: where that has gone back since another one was written, or has not moved, the file's time
// is that of the other and a little more.
void write_checkpoint_file(const std::string& path, const std::function<void()>& write);

}  // namespace cohort
