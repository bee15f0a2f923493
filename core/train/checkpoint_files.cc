#include "core/train/checkpoint_files.h"

#include <system_error>

namespace cohort {

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

}  // namespace cohort
