#include "core/train/safetensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include <gtest/gtest.h>

#include "core/base/file.h"
#include "core/base/random.h"
#include "tests/testing/trials.h"

namespace cohort {
namespace {

std::string temporary(const std::string& name) { return ::testing::TempDir() + "/" + name; }

// A file with this header and data; the length in front is right unless given.
std::string file_with(const std::string& header, const std::string& data,
                      std::optional<uint64_t> length = {}) {
  const uint64_t size = length.value_or(header.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return bytes + header + data;
}

std::string error_of(const std::string& content, Code expected = Code::kDataLoss) {
  const std::string path = temporary("hostile.safetensors");
  std::ofstream(path, std::ios::binary) << content;
  try {
    read_safetensors(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), expected) << error.what();
    EXPECT_EQ(error.message().rfind(path, 0), 0u) << error.what();
    return error.message().substr(path.size());
  }
  return "no error";
}

TEST(Safetensors, ComesBackAsItWasWritten) {
  Safetensors content;
  content.metadata = {{"step", "12"}, {"note", "a \"quoted\" line\n"}};
  content.tensors["bytes"] = Tensor::from<uint8_t>({1, 2, 3}, {3});
  content.tensors["weights"] = Tensor::from<float>({1, -2, 3.5f, 4, 5, 6}, {2, 3});
  content.tensors["none"] = Tensor::zeros(DType::kInt64, {0, 4});
  content.tensors["scalar"] = Tensor::scalar<int64_t>(-7);
  for (const DType dtype :
       {DType::kFloat64, DType::kBFloat16, DType::kFloat16, DType::kInt32, DType::kBool}) {
    content.tensors[std::string(dtype_name(dtype))] = Tensor::full(dtype, {2}, 1);
  }
  const std::string path = temporary("round_trip.safetensors");
  write_safetensors(path, content);

  const Safetensors read = read_safetensors(path);
  EXPECT_EQ(read.metadata, content.metadata);
  ASSERT_EQ(read.tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    const Tensor& other = read.tensors.at(name);
    ASSERT_EQ(other.spec(), tensor.spec()) << name;
    EXPECT_EQ(std::memcmp(other.raw(), tensor.raw(), tensor.bytes()), 0) << name;
  }
}

TEST(Safetensors, ItsMetadataIsReadWithoutTheBytesOfTensors) {
  const std::string path = temporary("metadata.safetensors");
  write_safetensors(path, {.tensors = {{"x", Tensor::full(DType::kFloat32, {1000}, 1)}},
                           .metadata = {{"step", "12"}}});
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file << '!';
  file.close();
  EXPECT_THROW(read_safetensors(path), Error);
  EXPECT_EQ(read_safetensors_metadata(path), (std::map<std::string, std::string>{{"step", "12"}}));
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_THROW(read_safetensors_metadata(path), Error);
}

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const std::string header = R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string path = temporary("by_hand.safetensors");
  const float value = 2.5f;
  std::ofstream(path, std::ios::binary)
      << file_with(header, std::string(reinterpret_cast<const char*>(&value), sizeof value));
  EXPECT_EQ(read_safetensors(path).tensors.at("x").item(), 2.5);
}

TEST(Safetensors, ABoolIsZeroOrOneWhateverByteItIsInTheFile) {
  Tensor bools(DType::kBool, {3});
  std::memcpy(bools.raw(), "\2\0\xff", 3);
  const std::string path = temporary("bools.safetensors");
  write_safetensors(path, {.tensors = {{"bools", bools}}, .metadata = {}});
  const Tensor read = read_safetensors(path).tensors.at("bools");
  EXPECT_EQ(std::memcmp(read.raw(), "\1\0\1", 3), 0);
}

TEST(Safetensors, DataStartsAligned) {
  const std::string path = temporary("aligned.safetensors");
  write_safetensors(
      path, {.tensors = {{"x", Tensor::scalar<uint8_t>(1)}, {"y", Tensor::scalar<double>(1)}}});
  const std::string bytes = read_file(path);
  EXPECT_EQ((bytes.size() - 9) % 8, 0u);
  EXPECT_EQ(read_safetensors(path).tensors.at("y").item(), 1);
}

TEST(Safetensors, NamesWhatIsNoFile) {
  const auto expect = [](const std::string& path, Code code) {
    try {
      read_safetensors(path);
      FAIL() << "read " << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(error.message().find(path), std::string::npos) << error.message();
    }
  };
  expect(::testing::TempDir() + "/none.safetensors", Code::kNotFound);
  expect(::testing::TempDir(), Code::kInvalidArgument);
}

TEST(Safetensors, RefusesWhatDoesNotFitTheFile) {
  EXPECT_EQ(error_of("short"), ": at byte 0: too short for a safetensors file");
  EXPECT_EQ(error_of(file_with("{}", "", uint64_t{1} << 62)),
            ": at byte 0: a header of 4611686018427387904 bytes does not fit in a file of 10");
  EXPECT_EQ(error_of(file_with("[]", "")), ": at byte 8: the header is not a JSON object");
  EXPECT_NE(error_of(file_with("{\"x\":", "")).find("the header is not JSON"), std::string::npos);
  EXPECT_EQ(error_of(file_with("{}", "1234")), ": at byte 10: 4 bytes belong to no tensor");
}

TEST(Safetensors, RefusesTensorsThatDoNotFitTheirData) {
  const auto error_of_x = [](const std::string& x, const std::string& data = "12345678",
                             Code code = Code::kDataLoss) {
    return error_of(file_with("{\"x\":" + x + "}", data), code);
  };
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[3],"data_offsets":[0,12]})")
                .find("ends 4 bytes behind the end"),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})")
                .find("F32[3] but has 8 bytes"),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})").find("expected 0"),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})")
                .find("no valid data_offsets"),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})").find("\"shape\""),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[2.5],"data_offsets":[0,8]})").find("\"shape\""),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","data_offsets":[0,8]})").find("\"shape\""),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"shape":[2],"data_offsets":[0,8]})").find("no dtype"),
            std::string::npos);
  EXPECT_NE(error_of_x("7").find("\"shape\""), std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F8","shape":[8],"data_offsets":[0,8]})", "12345678",
                       Code::kUnimplemented)
                .find("\"F8\""),
            std::string::npos);
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[1e999],"data_offsets":[0,8]})")
                .find("the header has a number that is too large"),
            std::string::npos);
  // Element and byte counts beyond 64 bits.
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})"),
            "no error");
  EXPECT_NE(error_of_x(R"({"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]})"),
            "no error");
  EXPECT_NE(error_of_x(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})",
                       "12345678", Code::kUnimplemented)
                .find("has rank 11, above the limit of 8"),
            std::string::npos);
}

TEST(Safetensors, PassesOverDTypesThatAreNotSupportedAndSaysWhichTheyAre) {
  const std::map<std::string, int> sizes = {{"I8", 1},      {"I16", 2},     {"U16", 2},
                                            {"U32", 4},     {"U64", 8},     {"F8_E4M3", 1},
                                            {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}};
  const auto file_of = [](const std::string& dtype, int bytes) {
    return file_with(
        str(R"({"other":{"dtype":")", dtype, R"(","shape":[2,3],"data_offsets":[0,)", bytes,
            R"(]},"x":{"dtype":"U8","shape":[1],"data_offsets":[)", bytes, ",", bytes + 1, "]}}"),
        std::string(static_cast<size_t>(bytes), '\1') + "\7");
  };
  const std::string path = temporary("other_dtypes.safetensors");
  for (const auto& [dtype, size] : sizes) {
    SCOPED_TRACE(dtype);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << file_of(dtype, 6 * size);
    const Safetensors read = read_safetensors(path);
    ASSERT_EQ(read.tensors.size(), 1u);
    EXPECT_EQ(read.tensors.at("x").item(), 7);
    EXPECT_EQ(read.unsupported, (std::map<std::string, std::string>{{"other", dtype + "[2,3]"}}));
    EXPECT_THROW(write_safetensors(path, read), Error) << "which would lose it";
    EXPECT_NE(error_of(file_of(dtype, 6 * size + 1))
                  .find(str("\"other\" is ", dtype, "[2,3] but has ", 6 * size + 1, " bytes")),
              std::string::npos);
  }
}

// Before they are in memory as what they would be.
TEST(Safetensors, RefusesListsAndObjectsWhereNoneBelong) {
  const std::string deep(1'000'000, '[');
  for (const std::string& header : {"{\"x\":" + deep, std::string(R"({"x":[{},{}]})"),
                                    R"({"x":{"shape":)" + deep, std::string(R"({"x":{"y":{}}})")})
    EXPECT_EQ(error_of(file_with(header, "")),
              ": at byte 8: the header has lists or objects where none belong");
  EXPECT_EQ(error_of(file_with(deep, "")), ": at byte 8: the header is not a JSON object");
}

TEST(Safetensors, RefusesAShapeOfMoreAxesThanAnyTensorHas) {
  std::string shape = "1";
  for (int i = 0; i < 64; ++i) shape += ",1";
  EXPECT_EQ(error_of(file_with(R"({"x":{"shape":[)" + shape + "]}}", "")),
            ": at byte 8: the header has a list of more than 64 elements");
}

// In time that grows as the header does.
TEST(Safetensors, ReadsAHeaderOfManyTensors) {
  constexpr size_t kTensors = 100'000;
  std::string header = "{";
  for (size_t i = 0; i < kTensors; ++i)
    header +=
        str(i == 0 ? "" : ",", '"', i, R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
  const std::string path = temporary("many.safetensors");
  std::ofstream(path, std::ios::binary | std::ios::trunc) << file_with(header + "}", "");
  EXPECT_EQ(read_safetensors(path).tensors.size(), kTensors);
}

TEST(Safetensors, RefusesNamesThatComeTwiceAndOverlaps) {
  const std::string x = R"("x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  EXPECT_NE(error_of(file_with("{" + x + "," + x + "}", "ab")).find("\"x\" twice"),
            std::string::npos);
  EXPECT_NE(error_of(file_with(R"({"x":{"dtype":"U8","shape":[2],"shape":[1]}})", "ab"))
                .find("\"shape\" twice"),
            std::string::npos);
  EXPECT_NE(error_of(file_with("{" + x + R"(,"y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                               "abc"))
                .find("starts at data byte 1, expected 2"),
            std::string::npos);
}

TEST(Safetensors, DamageAnywhereIsAnErrorOrAnotherValidFile) {
  const std::string path = temporary("damaged.safetensors");
  write_safetensors(path, {.tensors = {{"a", Tensor::zeros(DType::kFloat32, {3, 2})},
                                       {"b", Tensor::scalar(1.0f)}},
                           .metadata = {{"k", "v"}}});
  const std::string good = read_file(path);
  const auto [seed, count] = testing::trials(20, 1000);
  SCOPED_TRACE(str("seed ", seed));
  RandomStream random(seed);
  for (uint64_t i = 0; i < count; ++i) {
    std::string bad = good;
    if (random.below(4) == 0) bad.resize(random.below(bad.size()));
    for (uint64_t edits = random.below(4); edits-- > 0 && !bad.empty();) {
      bad[random.below(bad.size())] = static_cast<char>(random.next());
    }
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    try {
      read_safetensors(path);
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::kDataLoss || error.code() == Code::kUnimplemented)
          << error.what();
    }
  }
}

TEST(Safetensors, EverySingleBitThatHasChangedIsNoticed) {
  const std::string path = temporary("flipped.safetensors");
  write_safetensors(path, {.tensors = {{"a", Tensor::from<float>({1, 2, 3}, {3})},
                                       {"b", Tensor::scalar<int64_t>(4)}},
                           .metadata = {{"training", "{\"epoch\":3}"}}});
  const std::string good = read_file(path);
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string bad = good;
    bad[bit / 8] ^= static_cast<char>(1 << bit % 8);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bad;
    try {
      read_safetensors(path);
      ADD_FAILURE() << "bit " << bit % 8 << " of byte " << bit / 8;
    } catch (const Error& error) {
      ASSERT_TRUE(error.code() == Code::kDataLoss || error.code() == Code::kUnimplemented)
          << error.what();
    }
  }
}

TEST(Safetensors, DamageNamesTheFileTheByteAndTheTensor) {
  const std::string path = temporary("damaged_tensor.safetensors");
  write_safetensors(path, {.tensors = {{"a", Tensor::zeros(DType::kFloat32, {3})},
                                       {"b", Tensor::zeros(DType::kFloat32, {2})}}});
  std::string bad = read_file(path);
  bad.back() ^= 0x40;
  EXPECT_EQ(error_of(bad).rfind(str(": at byte ", bad.size() - 8,
                                    ": tensor \"b\" of 8 bytes is damaged: its CRC-32C is "),
                                0),
            0u)
      << error_of(bad);
}

TEST(Safetensors, ChecksThatAnotherProgramHasCopiedAreSaidToBeWhatToRemove) {
  const std::string path = temporary("edited.safetensors");
  write_safetensors(path, {.tensors = {{"a", Tensor::scalar(1.0f)}}});
  std::string edited = read_file(path);
  const float two = 2;
  std::memcpy(edited.data() + edited.size() - sizeof two, &two, sizeof two);
  EXPECT_NE(error_of(edited).find("where another program has edited the file, remove the metadata "
                                  "crc32c and crc32c:* from it"),
            std::string::npos)
      << error_of(edited);
}

// As replaced characters, two names could be one.
TEST(Safetensors, TextThatIsNoUtf8IsRefusedAndTheFileStays) {
  const std::string path = temporary("no_utf8.safetensors");
  write_safetensors(path, {.tensors = {{"caf\xC3\xA9", Tensor::scalar(1.0f)}},
                           .metadata = {{"\xC3\xA9", "\xE2\x82\xAC"}}});
  const std::string before = read_file(path);
  const auto expect_refused = [&](const Safetensors& content, const std::string& message) {
    try {
      write_safetensors(path, content);
      ADD_FAILURE() << "it is written: " << message;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_EQ(error.message(), message);
    }
    EXPECT_EQ(read_file(path), before);
  };
  expect_refused(
      {.tensors = {{"caf\xE8", Tensor::scalar(1.0f)}, {"caf\xE9", Tensor::scalar(2.0f)}}},
      R"(the name of the tensor "caf\xe8" is not UTF-8)");
  expect_refused({.metadata = {{"\xC3", "v"}}}, R"(the key "\xc3" of the metadata is not UTF-8)");
  expect_refused({.metadata = {{"k", "v\xFE"}}},
                 R"(the value "v\xfe" of the metadata "k" is not UTF-8)");
  EXPECT_EQ(read_safetensors(path).metadata.at("\xC3\xA9"), "\xE2\x82\xAC");
}

TEST(Safetensors, NamesOfChecksAreNotForMetadata) {
  for (const char* name : {"crc32c", "crc32c:x"}) {
    try {
      write_safetensors(temporary("reserved.safetensors"), {.metadata = {{name, "12345678"}}});
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
    }
  }
}

TEST(Safetensors, TheNameOfTheMetadataIsNotForATensor) {
  const std::string path = temporary("reserved.safetensors");
  try {
    write_safetensors(path, {.tensors = {{"__metadata__", Tensor::scalar(1.0f)}}, .metadata = {}});
    ADD_FAILURE() << "it is written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find("__metadata__"), std::string::npos) << error.what();
  }
}

TEST(Safetensors, ATensorWithoutAValueIsRefused) {
  try {
    write_safetensors(temporary("undefined.safetensors"), {.tensors = {{"a", Tensor()}}});
    ADD_FAILURE() << "it is written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), "tensor \"a\" has no value; it was never assigned");
  }
}

TEST(Safetensors, AFailedSaveKeepsThePreviousFile) {
  const std::string folder = ::testing::TempDir() + "/no_such_folder";
  EXPECT_THROW(write_safetensors(folder + "/x.safetensors", {}), Error);
}

}  // namespace
}  // namespace cohort
