#include "core/train/event_file.h"

#include <cstring>

#include <gtest/gtest.h>

#include "core/base/crc32c.h"
#include "core/base/file.h"

namespace cohort {
namespace {

// A decoder of its own, written from the format's descriptions.
template <typename T>
T take(std::string_view& bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

std::vector<std::string_view> records(std::string_view file) {
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

uint64_t take_varint(std::string_view& bytes) {
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

std::vector<Field> fields(std::string_view message) {
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

TEST(EventFile, StartsWithTheVersionThatTensorBoardExpects) {
  EventFile file(testing::TempDir() + "/events_version");
  const std::string bytes = read_file(file.path());
  const auto all = records(bytes);
  ASSERT_EQ(all.size(), 1u);
  const auto header = fields(all[0]);
  ASSERT_EQ(header.size(), 2u);
  EXPECT_EQ(header[0].number, 1);
  EXPECT_GT(header[0].number64, 1.6e9);
  EXPECT_EQ(header[1].number, 3);
  EXPECT_EQ(header[1].bytes, "brain.Event:2");
  EXPECT_NE(file.path().find("/events.out.tfevents."), std::string::npos);
}

TEST(EventFile, HoldsScalarsByTagAsSoonAsTheyAreWritten) {
  EventFile file(testing::TempDir() + "/events_scalars");
  file.write_scalars(300, {{"epoch_accuracy", 0.75}, {"epoch_loss", 1.5}});
  const std::string bytes = read_file(file.path());
  const auto all = records(bytes);
  ASSERT_EQ(all.size(), 2u);
  const auto event = fields(all[1]);
  ASSERT_EQ(event.size(), 3u);
  EXPECT_EQ(event[1].number, 2);
  EXPECT_EQ(event[1].varint, 300u);
  EXPECT_EQ(event[2].number, 5);
  const auto values = fields(event[2].bytes);
  ASSERT_EQ(values.size(), 2u);
  const auto first = fields(values[0].bytes), second = fields(values[1].bytes);
  EXPECT_EQ(first[0].bytes, "epoch_accuracy");
  EXPECT_EQ(first[1].number, 2);
  EXPECT_EQ(first[1].number32, 0.75f);
  EXPECT_EQ(second[0].bytes, "epoch_loss");
  EXPECT_EQ(second[1].number32, 1.5f);
}

TEST(EventFile, HoldsHistogramsOfWholeNumbers) {
  EventFile file(testing::TempDir() + "/events_histograms");
  file.write_histograms(7, {{"staleness", {{0, 5}, {1, 2}, {4, 1}}}});
  const std::string bytes = read_file(file.path());
  const auto all = records(bytes);
  ASSERT_EQ(all.size(), 2u);
  const auto event = fields(all[1]);
  EXPECT_EQ(event[1].varint, 7u);
  const auto value = fields(fields(event[2].bytes)[0].bytes);
  EXPECT_EQ(value[0].bytes, "staleness");
  EXPECT_EQ(value[1].number, 5);
  const auto histogram = fields(value[1].bytes);
  ASSERT_EQ(histogram.size(), 7u);
  const std::vector<double> statistics = {0, 4, 8, 6, 18};  // min, max, num, sum, sum of squares
  for (size_t i = 0; i < statistics.size(); ++i) {
    EXPECT_EQ(histogram[i].number, static_cast<int>(i) + 1);
    EXPECT_EQ(histogram[i].number64, statistics[i]);
  }
  const auto doubles = [](std::string_view packed) {
    std::vector<double> values;
    while (!packed.empty()) values.push_back(take<double>(packed));
    return values;
  };
  EXPECT_EQ(doubles(histogram[5].bytes), (std::vector<double>{-0.5, 0.5, 1.5, 3.5, 4.5}));
  EXPECT_EQ(doubles(histogram[6].bytes), (std::vector<double>{0, 5, 2, 0, 1}));
}

TEST(EventFile, TwoFilesOfOneFolderDiffer) {
  const std::string folder = testing::TempDir() + "/events_two";
  EventFile a(folder), b(folder);
  EXPECT_NE(a.path(), b.path());
}

}  // namespace
}  // namespace cohort
