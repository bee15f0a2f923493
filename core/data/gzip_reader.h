#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <zlib.h>

#include "core/base/file.h"

namespace cohort::data {

// What the members of a gzip file hold, one behind the other. After the last one there may be zeros
// alone (as of a padded copy): zlib's own reader of files takes what is not the beginning of a
// member for the end, and so loses all members behind a damaged one. Errors are kDataLoss and name
// file and byte, or those of InputFile. Not synchronised.
class GzipReader {
 public:
  explicit GzipReader(InputFile& file);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // The next `bytes` bytes; fewer only at the end, when the checksums of all members have been
  // checked. Returns how many there were.
  size_t read(void* to, size_t bytes);

 private:
  // More of the file, where all has been taken; false at its end.
  bool fill();
  // Whether another member follows.
  bool begin_member();
  // Some bytes of the present member; returns how many.
  size_t inflate_some(char* to, size_t bytes);
  [[noreturn]] void fail_with(const char* problem) const;

  InputFile& file_;
  z_stream stream_ = {};
  std::array<unsigned char, size_t{64} << 10> input_;
  uint64_t taken_ = 0;  // of the file
  bool in_member_ = false, is_first_ = true;
};

}  // namespace cohort::data
