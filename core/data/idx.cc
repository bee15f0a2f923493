#include "core/data/idx.h"

#include <array>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/data/data_file.h"
#include "core/data/stored_type.h"
#include "core/data/table.h"

namespace cohort::data {
namespace {

constexpr uint64_t kTypeOffset = 2, kRankOffset = 3, kCountOffset = 4;
constexpr int64_t kLabelsStart = 8;  // magic and one extent
constexpr float kMaxPixel = 255;

StoredType type_from_code(uint8_t code, const DataFile& file) {
  switch (code) {
    case 0x08:
      return {'u', 1, true};
    case 0x09:
      return {'i', 1, true};
    case 0x0B:
      return {'i', 2, true};
    case 0x0C:
      return {'i', 4, true};
    case 0x0D:
      return {'f', 4, true};
    case 0x0E:
      return {'f', 8, true};
  }
  file.fail_at(kTypeOffset, "IDX has no type number ", int{code});
}

std::vector<int64_t> read_dims(DataFile& file, int rank) {
  if (rank > Shape::kMaxRank)
    file.fail_at(kRankOffset, "the array has rank ", rank, "; at most ", Shape::kMaxRank,
                 " is read");
  std::vector<int64_t> dims;
  for (int i = 0; i < rank; ++i) {
    std::array<uint8_t, 4> b;
    file.read(b.data(), b.size(), "an extent");
    dims.push_back(int64_t{b[0]} << 24 | b[1] << 16 | b[2] << 8 | b[3]);
  }
  return dims;
}

std::string find_file(const std::string& dir, const std::string& name) {
  const std::string path = (std::filesystem::path(dir) / name).string();
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  if (std::filesystem::exists(path + ".gz", ignored)) return path + ".gz";
  fail(Code::kNotFound, "neither ", path, " nor ", path, ".gz exists");
}

Tensor read_bytes(const std::string& path, int rank) {
  Tensor array = read_idx(path);
  if (array.dtype() != DType::kUInt8 || array.shape().rank() != rank)
    fail(Code::kDataLoss, path, ": byte ", kTypeOffset, ": the array is ", array.spec(),
         "; it should be uint8 of rank ", rank);
  return array;
}

Tensor to_labels(const Tensor& bytes, int64_t num_classes, const std::string& path) {
  for (int64_t i = 0; i < bytes.num_elements(); ++i) {
    const int label = bytes.data<uint8_t>()[i];
    if (label >= num_classes)
      fail(Code::kDataLoss, path, ": byte ", kLabelsStart + i, ": label ", label, " of example ", i,
           " is out of range; there are ", num_classes, " classes");
  }
  return bytes.cast(DType::kInt32);
}

}  // namespace

Tensor read_idx(const std::string& path) {
  DataFile file(path);
  std::array<uint8_t, 4> magic;
  file.read(magic.data(), magic.size(), "the magic number");
  if (magic[0] != 0 || magic[1] != 0)
    file.fail_at(0, "this is not an IDX file, which starts with two zeros");
  const StoredType type = type_from_code(magic[kTypeOffset], file);
  const std::vector<int64_t> dims = read_dims(file, magic[kRankOffset]);
  Tensor bytes = file.read_array(dims, type.bytes);
  file.expect_end();
  return decode(std::move(bytes), type, Shape(dims));
}

Dataset images_from_idx(const std::string& dir, const std::string& split, IdxOptions options) {
  if (split != "train" && split != "test")
    invalid("no split \"", split, "\"; there are \"train\" and \"test\"");
  const std::string prefix = split == "train" ? "train" : "t10k";
  const std::string images_path = find_file(dir, prefix + "-images-idx3-ubyte");
  const std::string labels_path = find_file(dir, prefix + "-labels-idx1-ubyte");
  const Tensor images = read_bytes(images_path, 3), labels = read_bytes(labels_path, 1);
  const int64_t count = images.shape()[0];
  if (count != labels.shape()[0])
    fail(Code::kDataLoss, images_path, ": byte ", kCountOffset, ": the file holds ", count,
         " images, but ", labels_path, " ", labels.shape()[0], " labels");
  if (images.num_elements() == 0)
    fail(Code::kDataLoss, images_path, ": byte ", kCountOffset,
         ": the file holds no images: ", images.shape());
  return from_table(std::make_shared<Table>(std::vector<Table::Column>{
      {"image", images.reshape(images.shape().with_inserted(3, 1)), kMaxPixel},
      {"label", to_labels(labels, options.num_classes, labels_path), std::nullopt}}));
}

}  // namespace cohort::data
