#include "core/data/cifar.h"

#include <filesystem>
#include <vector>

#include "core/base/file.h"
#include "core/data/table.h"

namespace cohort::data {
namespace {

constexpr int64_t kSide = 32, kChannels = 3, kClasses = 10;
constexpr int64_t kPlane = kSide * kSide;
constexpr int64_t kImage = kPlane * kChannels;
constexpr int64_t kRecord = 1 + kImage;
constexpr float kMaxPixel = 255;

std::vector<std::string> files_of(const std::string& split) {
  if (split == "train")
    return {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
            "data_batch_5.bin"};
  if (split == "test") return {"test_batch.bin"};
  invalid("no split \"", split, "\"; there are \"train\" and \"test\"");
}

std::string read_records(const std::string& path) {
  std::string records = read_file(path);
  const int64_t size = static_cast<int64_t>(records.size());
  if (size == 0) fail(Code::kDataLoss, path, ": byte 0: the file is empty");
  if (size % kRecord != 0)
    fail(Code::kDataLoss, path, ": byte ", size - size % kRecord,
         ": the last record is truncated: ", size % kRecord, " of ", kRecord, " bytes");
  for (int64_t at = 0; at < size; at += kRecord) {
    const int label = static_cast<uint8_t>(records[at]);
    if (label >= kClasses)
      fail(Code::kDataLoss, path, ": byte ", at, ": label ", label, " of record ", at / kRecord,
           " is out of range; there are ", kClasses, " classes");
  }
  return records;
}

// From planes to one pixel after the other.
void interleave_planes(const char* planes, uint8_t* pixels) {
  for (int64_t pixel = 0; pixel < kPlane; ++pixel)
    for (int64_t channel = 0; channel < kChannels; ++channel)
      *pixels++ = static_cast<uint8_t>(planes[channel * kPlane + pixel]);
}

}  // namespace

Dataset images_from_cifar10(const std::string& dir, const std::string& split) {
  std::string records;
  for (const std::string& name : files_of(split))
    records += read_records((std::filesystem::path(dir) / name).string());
  const int64_t count = static_cast<int64_t>(records.size()) / kRecord;
  Tensor images(DType::kUInt8, {count, kSide, kSide, kChannels}), labels(DType::kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    const char* record = records.data() + i * kRecord;
    labels.data<int32_t>()[i] = static_cast<uint8_t>(*record);
    interleave_planes(record + 1, images.data<uint8_t>() + i * kImage);
  }
  return from_table(std::make_shared<Table>(
      std::vector<Table::Column>{{"image", images, kMaxPixel}, {"label", labels, std::nullopt}}));
}

}  // namespace cohort::data
