#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/partitioner.h"

namespace cohort::parameter_server {

// The file of all values of a snapshot, for reading. Errors are kDataLoss where it is not as it was
// written, and else those of files.
class ValuesFile {
 public:
  // A tensor in the file.
  struct Place {
    std::string what;  // for people
    TensorSpec spec;
    uint64_t begin = 0;
    uint32_t check = 0;
  };

  explicit ValuesFile(std::string path);

  uint64_t bytes() const { return bytes_; }

  template <typename... Parts>
  [[noreturn]] void corrupt(const Parts&... parts) const {
    fail(Code::kDataLoss, path_, ": ", parts...);
  }

  // Compares it with its check, piece by piece.
  void verify(const Place& place) const;
  Tensor tensor(const Place& place) const;
  // Some of its rows, of so many bytes each, which are not compared with anything.
  void read_rows(const Place& place, const RowRange& rows, size_t row_bytes, char* target) const;
  // Numbers of rows of a shard of so many.
  std::vector<int64_t> rows(const Place& place, int64_t limit) const;

 private:
  void read(char* to, uint64_t bytes, uint64_t at) const;
  void require_check(const Place& place, uint32_t check) const;

  const std::string path_;
  const net::Descriptor file_;
  uint64_t bytes_ = 0;
};

}  // namespace cohort::parameter_server
