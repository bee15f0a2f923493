#include "core/train/event_file.h"

#include <atomic>
#include <bit>
#include <chrono>
#include <filesystem>
#include <limits>
#include <unistd.h>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/host_name.h"

namespace cohort {
namespace {

static_assert(std::endian::native == std::endian::little, "the file's numbers are little-endian");

template <typename T>
std::string little_endian(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}

// Protocol Buffers' wire format, as far as events need it.
enum class WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string key(int field, WireType type) { return varint(field << 3 | static_cast<int>(type)); }
std::string varint_field(int field, uint64_t value) {
  return key(field, WireType::kVarint) + varint(value);
}
std::string double_field(int field, double value) {
  return key(field, WireType::kFixed64) + little_endian(value);
}
std::string float_field(int field, float value) {
  return key(field, WireType::kFixed32) + little_endian(value);
}
std::string bytes_field(int field, std::string_view value) {
  return key(field, WireType::kBytes) + varint(value.size()) + std::string(value);
}

// message Event { double wall_time = 1; int64 step = 2; string file_version = 3; Summary summary =
// 5; }
std::string event_header() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return double_field(1, std::chrono::duration<double>(now).count());
}

// message Summary { message Value { string tag = 1; float simple_value = 2; } repeated Value value
// = 1; }
std::string summary(const std::map<std::string, double>& values) {
  std::string out;
  for (const auto& [tag, value] : values) {
    out += bytes_field(1, bytes_field(1, tag) + float_field(2, static_cast<float>(value)));
  }
  return out;
}

// message HistogramProto { double min = 1, max = 2, num = 3, sum = 4, sum_squares = 5; repeated
// double bucket_limit = 6 [packed], bucket = 7 [packed]; }. A number n is in the bucket from n -
// 0.5 to n + 0.5; those between are empty.
std::string histogram(const std::map<int64_t, int64_t>& counts) {
  double num = 0, sum = 0, squares = 0;
  std::string limits, buckets;
  double limit = -std::numeric_limits<double>::infinity();
  const auto add_bucket = [&](double up_to, double count) {
    limits += little_endian(up_to);
    buckets += little_endian(count);
    limit = up_to;
  };
  for (const auto& [number, times] : counts) {
    const auto value = static_cast<double>(number), count = static_cast<double>(times);
    num += count;
    sum += count * value;
    squares += count * value * value;
    if (limit < value - 0.5) add_bucket(value - 0.5, 0);
    add_bucket(value + 0.5, count);
  }
  return double_field(1, static_cast<double>(counts.begin()->first)) +
         double_field(2, static_cast<double>(counts.rbegin()->first)) + double_field(3, num) +
         double_field(4, sum) + double_field(5, squares) + bytes_field(6, limits) +
         bytes_field(7, buckets);
}

// message Summary { message Value { string tag = 1; HistogramProto histo = 5; } repeated Value
// value = 1; }
std::string summary(const std::map<std::string, std::map<int64_t, int64_t>>& values) {
  std::string out;
  for (const auto& [tag, counts] : values)
    if (!counts.empty())
      out += bytes_field(1, bytes_field(1, tag) + bytes_field(5, histogram(counts)));
  return out;
}

// TensorBoard looks for ".tfevents." and reads the files of a folder in the order of their names.
std::string unique_file_name() {
  static std::atomic<int> files_of_this_process = 0;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return str("events.out.tfevents.", std::chrono::duration_cast<std::chrono::seconds>(now).count(),
             ".", host_name("localhost"), ".", getpid(), ".", files_of_this_process++, ".v2");
}

std::string new_path(const std::string& directory) {
  create_folders(directory);
  return (std::filesystem::path(directory) / unique_file_name()).string();
}

}  // namespace

EventFile::EventFile(const std::string& directory)
    : file_(new_path(directory), /*must_be_new=*/true) {
  try {
    write_record(event_header() + bytes_field(3, "brain.Event:2"));
  } catch (const Error&) {
    ::unlink(path().c_str());
    throw;
  }
}

void EventFile::write_scalars(int64_t step, const std::map<std::string, double>& values) {
  write_summary(step, summary(values));
}

void EventFile::write_histograms(int64_t step,
                                 const std::map<std::string, std::map<int64_t, int64_t>>& values) {
  write_summary(step, summary(values));
}

void EventFile::write_summary(int64_t step, std::string_view summary) {
  write_record(event_header() + varint_field(2, static_cast<uint64_t>(step)) +
               bytes_field(5, summary));
}

// A TFRecord: length, its check, the data, its check.
void EventFile::write_record(std::string_view data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  const std::string record = length + little_endian(masked_crc32c(length)) + std::string(data) +
                             little_endian(masked_crc32c(data));
  file_.append(record);
}

}  // namespace cohort
