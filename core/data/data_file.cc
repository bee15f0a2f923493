#include "core/data/data_file.h"

#include <algorithm>
#include <utility>

namespace cohort::data {
namespace {

// The most that deflate can do: 258 bytes out of two bits.
constexpr uint64_t kMaxGzipRatio = 1032;
constexpr size_t kFirstChunk = size_t{1} << 20;

bool is_gzip(InputFile& file) {
  unsigned char magic[2] = {};
  const size_t count = file.read(magic, sizeof(magic));
  file.rewind();
  return count == sizeof(magic) && magic[0] == 0x1f && magic[1] == 0x8b;
}

}  // namespace

DataFile::DataFile(const std::string& path) : file_(path) {
  if (is_gzip(file_)) gzip_ = std::make_unique<GzipReader>(file_);
}

size_t DataFile::read_some(void* to, size_t bytes) {
  return gzip_ ? gzip_->read(to, bytes) : file_.read(to, bytes);
}

void DataFile::check_can_hold(uint64_t bytes, std::string_view what) const {
  if (!gzip_) {
    if (bytes > file_.size() - std::min(file_.size(), offset_))
      fail_at(offset_, what, " should take ", bytes, " bytes, but the file ends at byte ",
              file_.size());
  } else if (bytes / kMaxGzipRatio > file_.size()) {
    fail_at(offset_, what, " should take ", bytes, " bytes, more than ", file_.size(),
            " compressed bytes can hold");
  }
}

void DataFile::read(void* to, size_t bytes, std::string_view what) {
  check_can_hold(bytes, what);
  const size_t count = read_some(to, bytes);
  if (count < bytes)
    fail_at(offset_, what, " should take ", bytes, " bytes, but the content ends at byte ",
            offset_ + count);
  offset_ += bytes;
}

Tensor DataFile::read_array(std::span<const int64_t> dims, size_t item_bytes) {
  int64_t bytes = static_cast<int64_t>(item_bytes);
  bool empty = false;
  for (const int64_t dim : dims) {
    empty |= dim == 0;
    if (dim < 0 || __builtin_mul_overflow(bytes, std::max<int64_t>(dim, 1), &bytes))
      fail_at(offset_,
              "the extents in the header are impossible: their product is beyond 2^63 bytes");
  }
  if (empty) bytes = 0;
  check_can_hold(static_cast<uint64_t>(bytes), "the array");
  if (!gzip_) {
    Tensor array(DType::kUInt8, {bytes});
    read(array.raw(), array.bytes(), "the array");
    return array;
  }
  // The buffer grows with what has been decompressed, at most to twice that.
  std::string content;
  while (content.size() < static_cast<size_t>(bytes)) {
    const size_t have = content.size();
    content.resize(std::min(static_cast<size_t>(bytes), std::max(2 * have, kFirstChunk)));
    read(content.data() + have, content.size() - have, "the array");
  }
  return Tensor::from(std::span(reinterpret_cast<const uint8_t*>(content.data()), content.size()),
                      {bytes});
}

std::string DataFile::read_rest() {
  std::string content;
  size_t have = 0, count = 0;
  size_t more = gzip_ ? kFirstChunk : static_cast<size_t>(file_.size()) + 1;
  do {
    content.resize(have + more);
    count = read_some(content.data() + have, more);
    have += count;
  } while (count == std::exchange(more, have));
  content.resize(have);
  offset_ += have;
  return content;
}

void DataFile::expect_end() {
  char extra;
  if (read_some(&extra, 1) > 0) fail_at(offset_, "there is data after the end of the array");
}

}  // namespace cohort::data
