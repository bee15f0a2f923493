#include <array>
#include <filesystem>
#include <limits>

#include "core/base/file.h"
#include "core/data/cifar.h"
#include "core/data/synthetic.h"
#include "tests/data/testing.h"

namespace cohort::data {
namespace {

constexpr int kClasses = 10;

TEST(SyntheticCifar10, IsReadLikeTheRealFiles) {
  const TempDir dir;
  write_synthetic_cifar10(dir.path("of/its/own"), {.train = 12, .test = 3});
  EXPECT_EQ(images_from_cifar10(dir.path("of/its/own"), "train").cardinality(), 12);
  EXPECT_EQ(images_from_cifar10(dir.path("of/its/own"), "test").cardinality(), 3);
}

TEST(SyntheticCifar10, DependsOnTheSeedOnly) {
  const TempDir dir;
  const auto written = [&](const std::string& name, uint64_t seed) {
    write_synthetic_cifar10(dir.path(name), {.train = 5, .test = 2, .seed = seed});
    return read_file(dir.path(name + "/data_batch_1.bin")) +
           read_file(dir.path(name + "/test_batch.bin"));
  };
  const std::string first = written("first", 7);
  EXPECT_EQ(written("again", 7), first);
  EXPECT_NE(written("other", 8), first);
}

TEST(SyntheticCifar10, RefusesToReplaceAFileAndToWriteAnEmptyOne) {
  const TempDir dir;
  const std::string path = dir.write("test_batch.bin", "mine");
  expect_error([&] { write_synthetic_cifar10(dir.root()); }, Code::kAlreadyExists, {path});
  EXPECT_EQ(read_file(path), "mine");
  EXPECT_FALSE(std::filesystem::exists(dir.path("data_batch_1.bin")));
  expect_error([&] { write_synthetic_cifar10(dir.path("few"), {.train = 4}); },
               Code::kInvalidArgument, {"4 images", "at least 5"});
  expect_error([&] { write_synthetic_cifar10(dir.path("few"), {.test = 0}); },
               Code::kInvalidArgument, {"0 to test"});
}

// Means of the classes tell little: what is to be learned is form, not colour or place.
TEST(SyntheticCifar10, HasEveryClassAndNoneThatItsMeanTells) {
  const TempDir dir;
  write_synthetic_cifar10(dir.root(), {.train = 1500, .test = 300});
  using Image = std::vector<double>;
  std::array<Image, kClasses> means;
  means.fill(Image(32 * 32 * 3));
  std::array<int, kClasses> counts{};
  for (const Element& element : images_from_cifar10(dir.root(), "train")) {
    const auto label = static_cast<size_t>(element["label"].item());
    const auto pixels = element["image"].values<float>();
    for (size_t i = 0; i < pixels.size(); ++i) means[label][i] += pixels[i];
    ++counts[label];
  }
  for (int label = 0; label < kClasses; ++label) {
    EXPECT_GT(counts[label], 75) << label;
    for (double& value : means[label]) value /= counts[label];
  }
  int right = 0, all = 0;
  for (const Element& element : images_from_cifar10(dir.root(), "test")) {
    const auto pixels = element["image"].values<float>();
    int nearest = 0;
    double least = std::numeric_limits<double>::max();
    for (int label = 0; label < kClasses; ++label) {
      double distance = 0;
      for (size_t i = 0; i < pixels.size(); ++i)
        distance += (pixels[i] - means[label][i]) * (pixels[i] - means[label][i]);
      if (distance < least) least = distance, nearest = label;
    }
    right += nearest == static_cast<int>(element["label"].item());
    ++all;
  }
  EXPECT_LT(right, 0.3 * all);
}

}  // namespace
}  // namespace cohort::data
