#include "core/distribute/packing.h"

#include <cstring>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(Packing, ReadsWhatItWroteAndNothingElse) {
  Packer packer;
  packer.add(int64_t{-3});
  packer.add(std::string_view("text"));
  packer.add(Signature{{DType::kInt32, {2, 0}}, {DType::kBool, {}}});
  packer.add(Tensor::from<float>({1, 2, 3}, {3}));
  packer.add(Error(Code::kDataLoss, "garbled", "worker:1"));
  packer.add(Error(static_cast<Code>(246), "of no code"));
  Unpacker unpacker(packer.bytes());
  EXPECT_EQ(unpacker.number(), -3);
  EXPECT_EQ(unpacker.text(), "text");
  EXPECT_EQ(unpacker.signature(), (Signature{{DType::kInt32, {2, 0}}, {DType::kBool, {}}}));
  EXPECT_EQ(unpacker.tensor().data<float>()[2], 3);
  EXPECT_STREQ(unpacker.error().what(), "DATA_LOSS: garbled (peer worker:1)");
  EXPECT_EQ(unpacker.error().code(), Code::kUnknown);
  EXPECT_TRUE(unpacker.at_end());
}

TEST(Packing, ReadsBoolsThatAreZeroOrOne) {
  Tensor bools(DType::kBool, {2});
  std::memset(bools.raw(), 2, bools.bytes());
  Packer packer;
  packer.add(bools);
  const Tensor read = Unpacker(packer.bytes()).tensor();
  EXPECT_EQ(std::string_view(static_cast<const char*>(read.raw()), 2), "\1\1");
}

TEST(Packing, RefusesEveryCutAndEveryChangedByteOrReadsAValue) {
  Packer packer;
  packer.add(Signature{{DType::kInt32, {2, 3}}});
  packer.add(Tensor::from<float>({1, 2, 3}, {3}));
  const std::string whole = packer.bytes();
  const auto read = [](std::string_view bytes) {
    Unpacker unpacker(bytes);
    unpacker.signature();
    unpacker.tensor();
  };
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_THROW(read(std::string_view(whole).substr(0, size)), Error) << size;
  for (size_t i = 0; i < whole.size(); ++i)
    for (const char change : {'\x01', '\x80', '\xff'}) {
      std::string garbled = whole;
      garbled[i] = static_cast<char>(garbled[i] ^ change);
      try {
        read(garbled);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kDataLoss) << error.what();
      }
    }
}

}  // namespace
}  // namespace cohort
