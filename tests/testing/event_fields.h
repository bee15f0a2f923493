#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/crc32c.h"

// A decoder of TensorBoard's event files of its own, written from the format's descriptions.
namespace cohort::event_fields {

template <typename T>
T take(std::string_view& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

inline std::vector<std::string_view> records(std::string_view file) {
  std::vector<std::string_view> out;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = take<uint64_t>(file);
    EXPECT_EQ(take<uint32_t>(file), masked_crc32c(length_bytes));
    out.push_back(file.substr(0, length));
    file.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(file), masked_crc32c(out.back()));
  }
  return out;
}

inline uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  int number;
  uint64_t varint = 0;
  double number64 = 0;
  float number32 = 0;
  std::string_view bytes;
};

inline std::vector<Field> fields(std::string_view message) {
  std::vector<Field> out;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    Field field{static_cast<int>(key >> 3)};
    switch (key & 7) {
      case 0:
        field.varint = take_varint(message);
        break;
      case 1:
        field.number64 = take<double>(message);
        break;
      case 5:
        field.number32 = take<float>(message);
        break;
      case 2: {
        const uint64_t size = take_varint(message);
        field.bytes = message.substr(0, size);
        message.remove_prefix(size);
        break;
      }
      default:
        ADD_FAILURE() << "wire type " << (key & 7);
    }
    out.push_back(field);
  }
  return out;
}

// What the summaries of this tag hold in the field of this number, in the order of the file.
inline std::vector<Field> summaries(std::string_view file, std::string_view tag, int number) {
  std::vector<Field> found;
  for (const std::string_view record : records(file))
    for (const Field& event : fields(record)) {
      if (event.number != 5) continue;
      for (const Field& value : fields(event.bytes)) {
        const auto parts = fields(value.bytes);
        if (parts.size() > 1 && parts[0].bytes == tag && parts[1].number == number)
          found.push_back(parts[1]);
      }
    }
  return found;
}

// The scalars of this tag, in the order of the file.
inline std::vector<float> scalars(std::string_view file, std::string_view tag) {
  std::vector<float> found;
  for (const Field& scalar : summaries(file, tag, 2)) found.push_back(scalar.number32);
  return found;
}

// How many numbers each histogram of this tag has, in the order of the file.
inline std::vector<double> histogram_counts(std::string_view file, std::string_view tag) {
  std::vector<double> counts;
  for (const Field& histogram : summaries(file, tag, 5))
    counts.push_back(fields(histogram.bytes)[2].number64);
  return counts;
}

}  // namespace cohort::event_fields
