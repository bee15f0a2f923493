#include "core/data/cifar.h"

#include <filesystem>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

constexpr size_t kPlane = 32 * 32;

// An image of one colour.
std::string record(int label, uint8_t red, uint8_t green, uint8_t blue) {
  std::string bytes(1, static_cast<char>(label));
  for (const uint8_t plane : {red, green, blue}) bytes.append(kPlane, static_cast<char>(plane));
  return bytes;
}

TEST(Cifar10, TurnsPlanesIntoPixels) {
  const TempDir dir;
  std::string second = record(9, 0, 51, 255);
  second[1 + kPlane + 33] = static_cast<char>(102);  // green of row 1, column 1
  dir.write("test_batch.bin", record(0, 1, 2, 3) + second);
  const Dataset dataset = images_from_cifar10(dir.root(), "test");
  EXPECT_EQ(dataset.cardinality(), 2);
  const Element element = *dataset.skip(1).iterate().next();
  EXPECT_EQ(str(element), "{image: float32[32,32,3], label: int32[]}");
  EXPECT_EQ(element["label"].item(), 9);
  const auto pixels = element["image"].values<float>();
  EXPECT_EQ(pixels[0], 0.0f);
  EXPECT_EQ(pixels[1], 51.0f / 255.0f);
  EXPECT_EQ(pixels[2], 1.0f);
  EXPECT_EQ(pixels[33 * 3 + 1], 102.0f / 255.0f);
}

TEST(Cifar10, JoinsTheFiveTrainingFiles) {
  const TempDir dir;
  for (int i = 1; i <= 5; ++i)
    dir.write(str("data_batch_", i, ".bin"), record(i, 0, 0, 0) + record(i, 0, 0, 0));
  std::vector<int> labels;
  for (auto& element : images_from_cifar10(dir.root(), "train"))
    labels.push_back(static_cast<int>(element["label"].item()));
  EXPECT_EQ(labels, (std::vector<int>{1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
}

TEST(Cifar10, SaysWhereAFileIsWrong) {
  const TempDir dir;
  const std::string path = dir.path("test_batch.bin");
  const auto read = [&] { images_from_cifar10(dir.root(), "test"); };
  expect_error(read, Code::kNotFound, {path});
  expect_error([&] { images_from_cifar10(dir.path("none"), "train"); }, Code::kNotFound,
               {dir.path("none/data_batch_1.bin")});
  std::filesystem::create_directory(path);
  expect_error(read, Code::kInvalidArgument, {path, "not a regular file"});
  dir.write("test_batch.bin", "");
  expect_error(read, Code::kDataLoss, {path + ": byte 0", "empty"});
  dir.write("test_batch.bin", record(1, 0, 0, 0) + "rest");
  expect_error(read, Code::kDataLoss, {path + ": byte 3073", "truncated: 4 of 3073 bytes"});
  dir.write("test_batch.bin", record(1, 0, 0, 0) + record(10, 0, 0, 0));
  expect_error(read, Code::kDataLoss, {path + ": byte 3073", "label 10 of record 1", "10 classes"});
  expect_error([&] { images_from_cifar10(dir.root(), "valid"); }, Code::kInvalidArgument,
               {"\"valid\""});
}

TEST(Cifar10, SurvivesDamagedFiles) {
  expect_robust("test_batch.bin", record(3, 1, 2, 3), [](const std::string& path) {
    images_from_cifar10(path.substr(0, path.rfind('/')), "test").iterate().next();
  });
}

}  // namespace
}  // namespace cohort::data
