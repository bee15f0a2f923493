#include "core/train/checkpoint_files.h"

#include <chrono>
#include <system_error>

namespace cohort {
namespace {

void put_behind(const std::string& path, std::filesystem::file_time_type time) {
  using std::chrono::milliseconds;
  std::error_code unknown;
  // Some file systems know whole seconds alone, or every second one.
  for (const milliseconds later : {milliseconds(1), milliseconds(2000)}) {
    if (std::filesystem::last_write_time(path, unknown) > time || unknown) return;
    std::filesystem::last_write_time(path, time + later, unknown);
  }
}

}  // namespace

std::set<CheckpointFile> checkpoint_files(const std::string& folder) {
  std::set<CheckpointFile> found;
  std::error_code unreadable, gone;  // the folder may come later, and files may go meanwhile
  std::filesystem::directory_iterator entry(folder, unreadable);
  for (; !unreadable && entry != end(entry); entry.increment(unreadable)) {
    if (entry->path().extension() != ".safetensors" || !entry->is_regular_file(gone)) continue;
    const auto written = entry->last_write_time(gone);
    if (!gone) found.insert({written, entry->path().string()});
  }
  return found;
}

void write_checkpoint_file(const std::string& path, const std::function<void()>& write) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const std::set<CheckpointFile> before = checkpoint_files(folder.empty() ? "." : folder);
  write();
  if (!before.empty()) put_behind(path, before.rbegin()->written);
}

}  // namespace cohort
