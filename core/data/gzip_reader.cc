#include "core/data/gzip_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.h"

namespace cohort::data {
namespace {

constexpr int kGzipOnly = MAX_WBITS + 16;

}  // namespace

GzipReader::GzipReader(InputFile& file) : file_(file) {
  if (inflateInit2(&stream_, kGzipOnly) != Z_OK)
    fail(Code::kResourceExhausted, file.path(), ": there is no memory for decompression");
}

GzipReader::~GzipReader() { inflateEnd(&stream_); }

size_t GzipReader::read(void* to, size_t bytes) {
  size_t done = 0;
  while (done < bytes && (in_member_ || begin_member()))
    done += inflate_some(static_cast<char*>(to) + done, bytes - done);
  return done;
}

bool GzipReader::fill() {
  if (stream_.avail_in > 0) return true;
  const size_t count = file_.read(input_.data(), input_.size());
  taken_ += count;
  stream_.next_in = input_.data();
  stream_.avail_in = static_cast<unsigned>(count);
  return count > 0;
}

bool GzipReader::begin_member() {
  if (!std::exchange(is_first_, false)) {
    while (fill() && *stream_.next_in == 0) {
      ++stream_.next_in;
      --stream_.avail_in;
    }
    inflateReset(&stream_);
  }
  return in_member_ = fill();
}

size_t GzipReader::inflate_some(char* to, size_t bytes) {
  if (!fill()) fail_with("unexpected end of file");
  const auto room =
      static_cast<unsigned>(std::min<size_t>(bytes, std::numeric_limits<unsigned>::max()));
  stream_.next_out = reinterpret_cast<unsigned char*>(to);
  stream_.avail_out = room;
  const int status = inflate(&stream_, Z_NO_FLUSH);
  if (status == Z_STREAM_END)
    in_member_ = false;
  else if (status == Z_MEM_ERROR)
    fail(Code::kResourceExhausted, file_.path(), ": there is no memory for decompression");
  else if (status != Z_OK && status != Z_BUF_ERROR)
    fail_with(stream_.msg != nullptr ? stream_.msg : "it needs a dictionary");
  return room - stream_.avail_out;
}

void GzipReader::fail_with(const char* problem) const {
  fail(Code::kDataLoss, file_.path(), ": byte ", taken_ - stream_.avail_in, " of ", file_.size(),
       ": the gzip file is truncated or corrupt: ", problem);
}

}  // namespace cohort::data
