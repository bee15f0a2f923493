#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/train/appended_file.h"

namespace cohort {

// A TensorBoard event file: TFRecords of `Event` messages with summaries. The format is
// described in tensorflow/core/util/event.proto and summary.proto. One thread at a time. What
// cannot be made or written throws as core/base/file.h says, and leaves no part of itself.
class EventFile {
 public:
  // Creates `directory` and its parents where missing, and a new file in it.
  explicit EventFile(const std::string& directory);

  const std::string& path() const { return file_.path(); }
  // Appends one event that holds `values` by tag, and hands it to the system, so that a TensorBoard
  // that is watching shows it at once.
  void write_scalars(int64_t step, const std::map<std::string, double>& values);
  // The same for histograms: how often each number has occurred.
  void write_histograms(int64_t step,
                        const std::map<std::string, std::map<int64_t, int64_t>>& values);

 private:
  void write_summary(int64_t step, std::string_view summary);
  void write_record(std::string_view data);

  AppendedFile file_;
};

}  // namespace cohort
