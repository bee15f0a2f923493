#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace cohort {

// A file that grows at its end by whole records, such as lines. One thread at a time. Errors as
// core/base/file.h says.
class AppendedFile {
 public:
  // Goes on with what is at `path`, or makes it; where it `must_be_new`, nothing may be there.
  explicit AppendedFile(std::string path, bool must_be_new = false);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  const std::string& path() const { return path_; }
  // In bytes. What is no regular file, such as a terminal, has none.
  int64_t length() const;
  // Hands the record to the system, so that others who read the file see it at once: all of it or,
  // where that fails, nothing.
  void append(std::string_view record);
  // Leaves so many bytes, at most.
  void cut(int64_t length);

 private:
  const std::string path_;
  const int descriptor_;
};

}  // namespace cohort
