#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/file.h"
#include "core/data/gzip_reader.h"
#include "core/tensor/tensor.h"

namespace cohort::data {

// A data file, read in order; gzip files, told by their first bytes, are decompressed on the
// way. No size written in the file is believed: memory is only allocated for bytes that are really
// there. Errors are kDataLoss (truncated, corrupt) or those of InputFile, and name file and byte
// offset. The offset is that in the decompressed content, unless decompression itself failed. Not
// synchronised.
class DataFile {
 public:
  explicit DataFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  uint64_t offset() const { return offset_; }  // of the next byte

  // Exactly `bytes` bytes; `what` says in an error what they are.
  void read(void* to, size_t bytes, std::string_view what);
  // An array of these extents, as a rank 1 uint8 tensor of its bytes.
  Tensor read_array(std::span<const int64_t> dims, size_t item_bytes);
  // All that is left; checks the checksum of a gzip file.
  std::string read_rest();
  // Throws unless everything was read; checks the checksum of a gzip file.
  void expect_end();

  // Throws kDataLoss "FILE: byte OFFSET: problem".
  template <typename... Parts>
  [[noreturn]] void fail_at(uint64_t offset, const Parts&... problem) const {
    cohort::fail(Code::kDataLoss, path(), ": byte ", offset,
                 gzip_ ? " of the decompressed content" : "", ": ", problem...);
  }

 private:
  size_t read_some(void* to, size_t bytes);
  // Throws when `bytes` more bytes cannot be there, whatever they are.
  void check_can_hold(uint64_t bytes, std::string_view what) const;

  InputFile file_;
  std::unique_ptr<GzipReader> gzip_;  // null for a plain file
  uint64_t offset_ = 0;
};

}  // namespace cohort::data
