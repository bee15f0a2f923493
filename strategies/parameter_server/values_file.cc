#include "strategies/parameter_server/values_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/crc32c.h"
#include "core/base/system_error.h"
#include "strategies/parameter_server/row_gradient.h"

namespace cohort::parameter_server {
namespace {

// That are checked at once.
constexpr uint64_t kPieceBytes = 64 << 10;

}  // namespace

ValuesFile::ValuesFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  struct stat status = {};
  if (!file_) fail_errno("open", path_);
  if (::fstat(file_.get(), &status) != 0) fail_errno("inspect", path_);
  if (!S_ISREG(status.st_mode)) corrupt("it is no regular file");
  bytes_ = static_cast<uint64_t>(status.st_size);
}

void ValuesFile::verify(const Place& place) const {
  std::array<char, kPieceBytes> piece;
  uint32_t check = 0;
  uint64_t at = place.begin;
  for (uint64_t left = place.spec.bytes(); left > 0;) {
    const auto some = std::min<uint64_t>(left, piece.size());
    read(piece.data(), some, at);
    check = crc32c({piece.data(), some}, check);
    at += some;
    left -= some;
  }
  require_check(place, check);
}

Tensor ValuesFile::tensor(const Place& place) const {
  Tensor tensor(place.spec.dtype, place.spec.shape);
  read(static_cast<char*>(tensor.raw()), tensor.bytes(), place.begin);
  require_check(place, crc32c({static_cast<const char*>(tensor.raw()), tensor.bytes()}));
  return tensor;
}

void ValuesFile::read_rows(const Place& place, const RowRange& rows, size_t row_bytes,
                           char* target) const {
  read(target, static_cast<uint64_t>(rows.rows()) * row_bytes,
       place.begin + static_cast<uint64_t>(rows.begin) * row_bytes);
}

std::vector<int64_t> ValuesFile::rows(const Place& place, int64_t limit) const {
  const Tensor numbers = tensor(place);
  const auto values = numbers.values<int64_t>();
  std::vector<int64_t> rows(values.begin(), values.end());
  if (!is_ascending(rows) || (!rows.empty() && (rows.front() < 0 || rows.back() >= limit)))
    corrupt(place.what, " are not of the shard, or not in order");
  return rows;
}

void ValuesFile::read(char* to, uint64_t bytes, uint64_t at) const {
  while (bytes > 0) {
    const ssize_t got = ::pread(file_.get(), to, bytes, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path_);
    if (got == 0) corrupt("it has become shorter");
    to += got;
    at += static_cast<uint64_t>(got);
    bytes -= static_cast<uint64_t>(got);
  }
}

void ValuesFile::require_check(const Place& place, uint32_t check) const {
  if (check != place.check) corrupt(place.what, " is not as it was written: its checksum differs");
}

}  // namespace cohort::parameter_server
