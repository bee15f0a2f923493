#include "core/data/idx.h"

#include <cstring>
#include <filesystem>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

constexpr char kTrainImages[] = "train-images-idx3-ubyte",
               kTrainLabels[] = "train-labels-idx1-ubyte";

// Two images of 2 by 2 pixels and their labels.
const std::string kImages = idx_bytes({2, 2, 2}, {"\x00\xff\x33\x66\x01\x02\x03\x04", 8});
const std::string kLabels = idx_bytes({2}, "\x07\x03");

std::string as_type(char code, std::string file) {
  file[2] = code;
  return file;
}

TEST(ReadIdx, ReadsEachElementType) {
  const TempDir dir;
  const std::string four("\x01\x02\xff\xfe", 4);
  EXPECT_EQ(to_string(read_idx(dir.write("f", idx_bytes({2, 2}, four)))),
            "uint8[2,2] {1, 2, 255, 254}");
  EXPECT_EQ(to_string(read_idx(dir.write("f", as_type(0x09, idx_bytes({4}, four))))),
            "int32[4] {1, 2, -1, -2}");
  EXPECT_EQ(to_string(read_idx(dir.write("f", as_type(0x0B, idx_bytes({2}, four))))),
            "int32[2] {258, -2}");
  EXPECT_EQ(to_string(read_idx(dir.write("f", as_type(0x0C, idx_bytes({1}, {"\0\1\2\3", 4}))))),
            "int32[1] {66051}");
  EXPECT_EQ(to_string(read_idx(dir.write("f", as_type(0x0D, idx_bytes({1}, {"\x3f\xc0\0\0", 4}))))),
            "float32[1] {1.5}");
  EXPECT_EQ(to_string(read_idx(
                dir.write("f", as_type(0x0E, idx_bytes({1}, {"\xc0\x04\0\0\0\0\0\0", 8}))))),
            "float64[1] {-2.5}");
}

TEST(ReadIdx, ReadsScalarsAndEmptyArrays) {
  const TempDir dir;
  EXPECT_EQ(to_string(read_idx(dir.write("f", idx_bytes({}, "\x05")))), "uint8[] {5}");
  EXPECT_EQ(read_idx(dir.write("f", idx_bytes({0, 7}, ""))).shape(), Shape({0, 7}));
}

TEST(ReadIdx, DecompressesGzip) {
  const TempDir dir;
  std::string content(3'000'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * i / 7);
  const Tensor array = read_idx(dir.write("f.gz", gzip(idx_bytes({3000, 1000}, content))));
  EXPECT_EQ(array.shape(), Shape({3000, 1000}));
  EXPECT_EQ(std::memcmp(array.raw(), content.data(), content.size()), 0);
}

TEST(ReadIdx, SaysWhereAFileIsWrong) {
  const TempDir dir;
  const auto read = [&](std::string_view content) {
    return [&, content] { read_idx(dir.write("f", content)); };
  };
  const std::string path = dir.path("f");
  expect_error([&] { read_idx(path); }, Code::kNotFound, {path, "No such file"});
  expect_error([&] { read_idx(dir.root()); }, Code::kInvalidArgument,
               {dir.root(), "not a regular file"});
  expect_error(read(""), Code::kDataLoss, {path + ": byte 0", "magic number should take 4 bytes"});
  expect_error(read("PK\x03\x04"), Code::kDataLoss, {path + ": byte 0", "not an IDX file"});
  expect_error(read({"\0\0\x0f\x01", 4}), Code::kDataLoss, {path + ": byte 2", "type number 15"});
  expect_error(read({"\0\0\x08\x09", 4}), Code::kDataLoss, {path + ": byte 3", "rank 9"});
  expect_error(read(kImages.substr(0, 10)), Code::kDataLoss,
               {path + ": byte 8", "an extent", "ends at byte 10"});
  expect_error(read(kImages.substr(0, 20)), Code::kDataLoss,
               {path + ": byte 16", "8 bytes", "ends at byte 20"});
  expect_error(read(kImages + "x"), Code::kDataLoss, {path + ": byte 24", "after the end"});
}

TEST(ReadIdx, DoesNotBelieveHugeExtents) {
  const TempDir dir;
  const uint32_t huge = 0xffffffff;
  const std::vector<std::vector<uint32_t>> all_dims = {
      {huge},
      {1u << 30, 1u << 30},
      {huge, huge, huge},
      {0, huge, huge, huge},
      {huge, huge, huge, huge, huge, huge, huge, huge}};
  for (const auto& dims : all_dims) {
    const std::string file = idx_bytes(dims, "some");
    expect_error([&] { read_idx(dir.write("f", file)); }, Code::kDataLoss,
                 {dir.path("f") + ": byte "});
    expect_error([&] { read_idx(dir.write("f.gz", gzip(file))); }, Code::kDataLoss,
                 {dir.path("f.gz") + ": byte "});
  }
}

TEST(ReadIdx, DecompressesNoMoreThanTheHeaderDeclares) {
  const TempDir dir;
  // 20 MB of zeros take 20 kB: a header that declares less stops the reading, one that declares
  // more fails at the end.
  const std::string zeros(20'000'000, '\0');
  const std::string less = gzip(idx_bytes({10}, zeros));
  expect_error([&] { read_idx(dir.write("f.gz", less)); }, Code::kDataLoss,
               {"byte 18", "decompressed", "after the end"});
  const std::string more = gzip(idx_bytes({20'000'001}, zeros));
  expect_error([&] { read_idx(dir.write("f.gz", more)); }, Code::kDataLoss,
               {"content ends at byte 20000008"});
}

TEST(ReadIdx, NoticesADamagedGzipFile) {
  const TempDir dir;
  const std::string good = gzip(kImages);
  std::string bad_checksum = good;
  bad_checksum[good.size() - 5] ^= 1;
  expect_error([&] { read_idx(dir.write("f.gz", bad_checksum)); }, Code::kDataLoss,
               {dir.path("f.gz") + ": byte ", "gzip file is truncated or corrupt: incorrect"});
  expect_error([&] { read_idx(dir.write("f.gz", good.substr(0, good.size() - 6))); },
               Code::kDataLoss, {dir.path("f.gz") + ": byte ", "gzip"});
}

TEST(ReadIdx, SurvivesDamagedFiles) {
  expect_robust("plain", kImages, [](const std::string& path) { read_idx(path); });
}

TEST(ReadIdx, NeverReadsWrongElementsFromADamagedGzipFile) {
  expect_robust("f.gz", gzip(kImages), [](const std::string& path) {
    const Tensor array = read_idx(path);
    EXPECT_EQ(std::memcmp(array.raw(), kImages.data() + 16, 8), 0);
  });
}

class ImagesFromIdx : public ::testing::Test {
 protected:
  const TempDir dir_;
};

TEST_F(ImagesFromIdx, ScalesPixelsAndKeepsLabels) {
  dir_.write(kTrainImages, kImages);
  dir_.write(std::string(kTrainLabels) + ".gz", gzip(kLabels));
  const Dataset dataset = images_from_idx(dir_.root(), "train");
  EXPECT_EQ(dataset.cardinality(), 2);
  const Element first = *dataset.iterate().next();
  EXPECT_EQ(str(first), "{image: float32[2,2,1], label: int32[]}");
  const auto pixels = first["image"].values<float>();
  EXPECT_EQ(pixels[0], 0.0f);
  EXPECT_EQ(pixels[1], 1.0f);
  EXPECT_EQ(pixels[2], 51.0f / 255.0f);
  EXPECT_EQ(first["label"].item(), 7);
  const Element batch = *dataset.batch(2).iterate().next();
  EXPECT_EQ(str(batch), "{image: float32[2,2,2,1], label: int32[2]}");
  EXPECT_EQ(batch["image"].values<float>()[3], 102.0f / 255.0f);
}

TEST_F(ImagesFromIdx, ReadsTheTestSplit) {
  dir_.write("t10k-images-idx3-ubyte.gz", gzip(kImages));
  dir_.write("t10k-labels-idx1-ubyte", kLabels);
  EXPECT_EQ(images_from_idx(dir_.root(), "test").cardinality(), 2);
  expect_error([&] { images_from_idx(dir_.root(), "validation"); }, Code::kInvalidArgument,
               {"\"validation\"", "\"test\""});
}

TEST_F(ImagesFromIdx, NamesTheMissingFile) {
  dir_.write(kTrainImages, kImages);
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kNotFound,
               {dir_.path(kTrainLabels), dir_.path(kTrainLabels) + ".gz"});
}

TEST_F(ImagesFromIdx, NamesAFolderInAFilesPlace) {
  dir_.write(kTrainImages, kImages);
  std::filesystem::create_directory(dir_.path(kTrainLabels) + ".gz");
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kInvalidArgument,
               {dir_.path(kTrainLabels) + ".gz", "not a regular file"});
}

TEST_F(ImagesFromIdx, NamesALabelOutOfRangeAndItsPlace) {
  dir_.write(kTrainImages, kImages);
  dir_.write(kTrainLabels, idx_bytes({2}, "\x09\x0a"));
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kDataLoss,
               {dir_.path(kTrainLabels) + ": byte 9", "label 10 of example 1", "10 classes"});
  EXPECT_EQ(images_from_idx(dir_.root(), "train", {.num_classes = 11}).cardinality(), 2);
}

TEST_F(ImagesFromIdx, RefusesFilesThatDoNotBelongTogether) {
  dir_.write(kTrainImages, kImages);
  dir_.write(kTrainLabels, idx_bytes({3}, "\x01\x02\x03"));
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kDataLoss,
               {dir_.path(kTrainImages) + ": byte 4", "2 images", "3 labels", kTrainLabels});
  dir_.write(kTrainLabels, kImages);
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kDataLoss,
               {kTrainLabels, "uint8[2,2,2]", "rank 1"});
}

TEST_F(ImagesFromIdx, RefusesEmptyFiles) {
  dir_.write(kTrainImages, idx_bytes({0, 2, 2}, ""));
  dir_.write(kTrainLabels, idx_bytes({0}, ""));
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kDataLoss,
               {kTrainImages, "no images"});
}

TEST_F(ImagesFromIdx, RefusesImagesWithoutPixels) {
  dir_.write(kTrainImages, idx_bytes({1, 0, 2}, ""));
  dir_.write(kTrainLabels, idx_bytes({1}, "\1"));
  expect_error([&] { images_from_idx(dir_.root(), "train"); }, Code::kDataLoss,
               {kTrainImages, "no images: [1,0,2]"});
}

}  // namespace
}  // namespace cohort::data
