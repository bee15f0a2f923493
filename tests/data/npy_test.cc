#include "core/data/npy.h"

#include <cstring>

#include "core/base/file.h"
#include "tests/data/testing.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::data {
namespace {

// A .npy file of version 1 with this header.
std::string npy_bytes(const std::string& header, std::string_view elements) {
  std::string file("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 0xff);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(elements);
}

std::string header(const std::string& descr, const std::string& shape,
                   const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

class Npy : public ::testing::Test {
 protected:
  std::string read(const std::string& bytes) const {
    return to_string(read_npy(dir_.write("f.npy", bytes)));
  }
  void expect_bad(const std::string& bytes, std::vector<std::string> texts) const {
    texts.push_back(dir_.path("f.npy") + ": byte ");
    expect_error([&] { read(bytes); }, Code::kDataLoss, texts);
  }

  const TempDir dir_;
};

// Also to see whether it is a gzip file, so that both look at one file, whoever replaces it.
TEST_F(Npy, OpensAFileOnce) {
  const std::string bytes = npy_bytes(header("|u1", "(2,)"), "ab");
  for (const std::string& content : {bytes, gzip(bytes)}) {
    const std::string path = dir_.write("f.npy", content);
    const cohort::testing::FewDescriptors one(1);
    EXPECT_EQ(to_string(read_npy(path)), "uint8[2] {97, 98}");
  }
}

TEST_F(Npy, ReadsBackWhatItWrote) {
  const std::vector<Tensor> tensors = {Tensor::from<float>({1.5f, -2, 3, 4, 5, 6}, {2, 3}),
                                       Tensor::from<double>({0.1}, {1}),
                                       Tensor::scalar<int64_t>(-7),
                                       Tensor::from<int32_t>({1, 2}, {2, 1, 1}),
                                       Tensor::from<uint8_t>({255}, {1}),
                                       Tensor::full(DType::kBool, {3}, 1),
                                       Tensor::full(DType::kFloat16, {2}, 0.5),
                                       Tensor::zeros(DType::kFloat32, {0, 4})};
  for (const Tensor& tensor : tensors) {
    write_npy(dir_.path("t.npy"), tensor);
    const Tensor read = read_npy(dir_.path("t.npy"));
    EXPECT_EQ(read.spec(), tensor.spec());
    EXPECT_EQ(std::memcmp(read.raw(), tensor.raw(), tensor.bytes()), 0) << to_string(tensor);
  }
  expect_error([&] { write_npy(dir_.path("t.npy"), Tensor::zeros(DType::kBFloat16, {1})); },
               Code::kUnimplemented, {"bfloat16"});
  expect_error([&] { write_npy(dir_.path("none.npy"), Tensor()); }, Code::kInvalidArgument,
               {dir_.path("none.npy"), "no value"});
}

TEST_F(Npy, IsADatasetOfItsRows) {
  write_npy(dir_.path("x.npy"), Tensor::from<float>({1, 2, 3, 4, 5, 6}, {3, 2}));
  write_npy(dir_.path("y.npy"), Tensor::from<int32_t>({7, 8, 9}, {3}));
  const Dataset rows = zip(npy(dir_.path("x.npy")), npy(dir_.path("y.npy"), {.name = "label"}));
  EXPECT_EQ(rows.cardinality(), 3);
  Iterator pass = rows.iterate();
  for (int64_t row = 0; row < 3; ++row) {
    const auto element = pass.next();
    ASSERT_TRUE(element);
    EXPECT_EQ(element->names(), (std::vector<std::string>{"features", "label"}));
    EXPECT_EQ((*element)["features"].spec(), (TensorSpec{DType::kFloat32, {2}}));
    EXPECT_EQ((*element)["features"].values<float>()[1], static_cast<float>(2 * row + 2));
    EXPECT_EQ((*element)["label"].item(), static_cast<double>(7 + row));
  }
  EXPECT_FALSE(pass.next());
  EXPECT_EQ(rows.batch(2).cardinality(), 2);
}

TEST_F(Npy, HasNoRowsWhereItIsAScalar) {
  write_npy(dir_.path("one.npy"), Tensor::scalar<int64_t>(1));
  expect_error([&] { npy(dir_.path("one.npy")); }, Code::kInvalidArgument,
               {dir_.path("one.npy"), "scalar"});
  expect_error([&] { npy(dir_.path("none")); }, Code::kNotFound, {dir_.path("none")});
}

TEST_F(Npy, WritesWhatNumPyWrites) {
  write_npy(dir_.path("t.npy"), Tensor::from<int32_t>({1, 2}, {2}));
  const std::string file = read_file(dir_.path("t.npy"));
  EXPECT_EQ(file.size(), 128u + 8u);
  EXPECT_TRUE(file.starts_with(std::string("\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', ", 26)))
      << file;
  EXPECT_EQ(file[127], '\n');
}

TEST_F(Npy, ReadsOtherTypesAndByteOrders) {
  const std::string four("\x01\x02\xff\xfe", 4);
  EXPECT_EQ(read(npy_bytes(header(">i2", "(2,)"), four)), "int32[2] {258, -2}");
  EXPECT_EQ(read(npy_bytes(header("<u2", "(2,)"), four)), "int32[2] {513, 65279}");
  EXPECT_EQ(read(npy_bytes(header("|i1", "(4,)"), four)), "int32[4] {1, 2, -1, -2}");
  EXPECT_EQ(read(npy_bytes(header(">u4", "(1,)"), {"\0\1\2\3", 4})), "int64[1] {66051}");
  EXPECT_EQ(read(npy_bytes(header(">f4", "()"), {"\x3f\xc0\0\0", 4})), "float32[] {1.5}");
  EXPECT_EQ(read(npy_bytes(header("|b1", "(4,)"), {"\0\1\2\xff", 4})), "bool[4] {0, 1, 1, 1}");
}

TEST_F(Npy, ReadsColumnMajorArrays) {
  EXPECT_EQ(read(npy_bytes(header("|u1", "(2, 3)", "True"), "\1\2\3\4\5\6")),
            "uint8[2,3] {1, 3, 5, 2, 4, 6}");
  EXPECT_EQ(read(npy_bytes(header("|u1", "(2, 2, 2)", "True"), "\1\2\3\4\5\6\7\x08")),
            "uint8[2,2,2] {1, 5, 3, 7, 2, 6, 4, 8}");
}

TEST_F(Npy, ReadsVersions2And3AndAnyOrderOfKeys) {
  const std::string dict = "{\"shape\": (1,), 'descr': '<i4', 'fortran_order': False}";
  for (const char version : {'\2', '\3'}) {
    std::string file("\x93NUMPY", 6);
    file += {version, '\0', static_cast<char>(dict.size()), '\0', '\0', '\0'};
    EXPECT_EQ(read(file + dict + std::string("\5\0\0\0", 4)), "int32[1] {5}");
  }
}

TEST_F(Npy, ReadsExtentsAsPython2WroteThem) {
  EXPECT_EQ(read(npy_bytes(header("|u1", "(2L, 1L)"), "\5\6")), "uint8[2,1] {5, 6}");
  expect_bad(npy_bytes(header("|u1", "(L,)"), ""), {"an extent"});
  expect_bad(npy_bytes(header("|u1", "(2LL,)"), ""), {"expected , or )"});
}

TEST_F(Npy, SaysWhereAFileIsWrong) {
  expect_error([&] { read_npy(dir_.path("none")); }, Code::kNotFound, {dir_.path("none")});
  expect_error([&] { read_npy(dir_.root()); }, Code::kInvalidArgument,
               {dir_.root(), "not a regular file"});
  const std::string good = header("<f4", "(2,)");
  expect_bad("", {"byte 0"});
  expect_bad("NUMPY___", {"byte 0", "not a .npy file"});
  expect_bad(std::string("\x93NUMPY\x09\x00\x10\x00", 10), {"byte 6", "version 9"});
  expect_bad(npy_bytes(good, "1234"), {str("byte ", 10 + good.size()), "8 bytes"});
  expect_bad(npy_bytes(good, "123456789"), {str("byte ", 18 + good.size()), "after the end"});
  expect_bad(npy_bytes("{'descr': '<f4'}", ""), {"byte 10", "has to have"});
  expect_bad(npy_bytes("{'descr': '<f4', 'descr': '<f4'}", ""), {"byte 27", "unexpected key"});
  expect_bad(npy_bytes("['descr']", ""), {"byte 10", "expected {"});
  expect_bad(npy_bytes(header("<f4", "(2 3)"), ""), {"expected , or )"});
  expect_bad(npy_bytes(header("<f4", "(-2,)"), ""), {"an extent"});
  expect_bad(npy_bytes(header("<f4", "(2,)", "Maybe"), ""), {"True or False"});
  expect_bad(npy_bytes(header("f4", "(2,)"), ""), {"not a type"});
  expect_bad(npy_bytes(good + "x", ""), {"after the header's dict"});
}

TEST_F(Npy, NamesTypesThatItCannotHold) {
  for (const std::string descr : {"<c8", "<u8", "|S5", "<f16", "|O", "<m8"})
    expect_error([&] { read(npy_bytes(header(descr, "(1,)"), "")); }, Code::kUnimplemented,
                 {dir_.path("f.npy") + ": byte 20", descr});
  expect_error([&] { read(npy_bytes("{'descr': [('a', '<f4')], 'shape': (1,)}", "")); },
               Code::kUnimplemented, {dir_.path("f.npy") + ": byte 20", "records"});
}

TEST_F(Npy, SaysThatItHoldsNoMoreThanEightAxes) {
  expect_error([&] { read(npy_bytes(header("<f4", "(1,1,1,1,1,1,1,1,1)"), "1234")); },
               Code::kUnimplemented, {dir_.path("f.npy"), "rank is above 8"});
}

TEST_F(Npy, DoesNotBelieveHugeSizes) {
  for (const std::string shape :
       {"(1152921504606846976,)", "(4294967296, 4294967296)", "(9223372036854775807,)",
        "(0, 9223372036854775807, 9223372036854775807)", "(99999999999999999999,)"})
    expect_bad(npy_bytes(header("<f8", shape), "12345678"), {});
  expect_bad(std::string("\x93NUMPY\x01\x00\xff\xff{", 11), {"byte 10", "65535 bytes"});
  expect_bad(std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{", 13),
             {"byte 12", "4294967295 bytes"});
}

TEST_F(Npy, SurvivesDamagedFiles) {
  const std::string file = npy_bytes(header("<i2", "(2, 2)", "True"), "12345678");
  expect_robust("f.npy", file, [](const std::string& path) { read_npy(path); });
}

}  // namespace
}  // namespace cohort::data
