#include "core/train/event_file.h"

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "tests/testing/event_fields.h"

namespace cohort {
namespace {

using namespace event_fields;

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
