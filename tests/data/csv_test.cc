#include "core/data/csv.h"

#include <cmath>

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

class Csv : public ::testing::Test {
 protected:
  // All rows of a file with this content as one batch.
  Element read(std::string_view content, CsvOptions options = {}) const {
    return *csv(dir_.write("f.csv", content), options).batch(1000).iterate().next();
  }
  void expect_bad(std::string_view content, std::vector<std::string> texts,
                  CsvOptions options = {}) const {
    texts.push_back(dir_.path("f.csv") + ":");
    expect_error([&] { read(content, options); }, Code::kDataLoss, texts);
  }

  const TempDir dir_;
};

TEST_F(Csv, SplitsFeaturesFromTheLabel) {
  const Element rows = read("width,kind,height\n1.5,2,3\n-4e1,0,.25\n", {.label_column = "kind"});
  EXPECT_EQ(to_string(rows["features"]), "float32[2,2] {1.5, 3, -40, 0.25}");
  EXPECT_EQ(to_string(rows["label"]), "int32[2] {2, 0}");
}

TEST_F(Csv, FindsTheLabelByNumberToo) {
  EXPECT_EQ(to_string(read("1,2,3\n", {.label_column = "0", .has_header = false})["label"]),
            "int32[1] {1}");
  EXPECT_EQ(to_string(read("1,2,3\n", {.label_column = "-1", .has_header = false})["label"]),
            "int32[1] {3}");
  EXPECT_EQ(to_string(read("0,1\n5,6\n", {.label_column = "1"})["label"]), "int32[1] {6}");
  expect_error([&] { read("a,b\n1,2\n", {.label_column = "c"}); }, Code::kNotFound,
               {"f.csv:1: byte 0: ", "\"c\" among the 2 (\"a\", \"b\")", "from -2 to 1"});
  expect_error([&] { read("a,b\n1,2\n", {.label_column = "2"}); }, Code::kNotFound,
               {"\"2\" among the 2"});
  expect_error([&] { read("a,b\n1,2\n", {.label_column = "-3"}); }, Code::kNotFound, {"\"-3\""});
}

TEST_F(Csv, TheNameOfTheLabelIsThatOfOneColumn) {
  expect_error([&] { read("a,b,a\n1,2,3\n", {.label_column = "a"}); }, Code::kInvalidArgument,
               {"f.csv:1: byte 0: columns 1 and 3 are both called \"a\""});
  EXPECT_EQ(to_string(read("a,b,a\n1,2,3\n", {.label_column = "0"})["label"]), "int32[1] {1}");
}

TEST_F(Csv, WarnsWhereTheHeaderMayBeARecord) {
  const auto said = [&](std::string_view content) {
    ::testing::internal::CaptureStderr();
    read(content);
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string warning = said("5.1, 3.5,nan\n4.9,3,1\n");
  EXPECT_NE(warning.find("f.csv:1: byte 0: only numbers are in what is taken for the header"),
            std::string::npos)
      << warning;
  for (const char* content : {"a,2\n3,4\n", "0,1\n3,4\n"}) EXPECT_EQ(said(content), "") << content;
}

TEST_F(Csv, TakesTheColumnsThatAreFeaturesAndNoOthers) {
  const std::string people = "age,job,label,height\n39,clerk,0,180\n50,\"farmer, retired\",1,175\n";
  const Element rows = read(people, {.label_column = "label", .feature_columns = {"-1", "age"}});
  EXPECT_EQ(to_string(rows["features"]), "float32[2,2] {180, 39, 175, 50}");
  EXPECT_EQ(to_string(rows["label"]), "int32[2] {0, 1}");
  const Element ages = read(people, {.feature_columns = {"0"}});
  EXPECT_EQ(str(ages), "{features: float32[2,1]}");
  expect_bad(people, {"f.csv:2: byte 24: column 2 (\"job\"): \"clerk\" is not a number"});
  expect_error(
      [&] {
        read(people, {.feature_columns = {"age", "size"}});
      },
      Code::kNotFound, {"f.csv:1: byte 0: ", "no column \"size\" among the 4"});
}

TEST_F(Csv, TakesAValueForEmptyFeatures) {
  const std::string gaps = "a,b,y\n1, ,0\n\"\",4,1\n";
  const CsvOptions options{.label_column = "y", .empty_value = -1};
  EXPECT_EQ(to_string(read(gaps, options)["features"]), "float32[2,2] {1, -1, -1, 4}");
  EXPECT_EQ(to_string(read(gaps, {.dtype = DType::kInt64, .empty_value = -1})["features"]),
            "int64[2,3] {1, -1, 0, -1, 4, 1}");
  EXPECT_EQ(to_string(read("a,b\n,2\n", {.empty_value = std::nan("")})["features"]),
            "float32[1,2] {nan, 2}");
  expect_bad(gaps, {"f.csv:2: byte 8: column 2 (\"b\"): \" \" is not a number"});
  expect_bad("a,y\n1,\n", {"f.csv:2: byte 6: column 2 (\"y\"): \"\" is not a number"}, options);
  expect_error([&] { read(gaps, {.dtype = DType::kInt32, .empty_value = std::nan("")}); },
               Code::kInvalidArgument, {"empty_value nan", "int32"});
}

TEST_F(Csv, HasNoLabelUnlessAsked) {
  const Element rows = read("a,b\n1,2\n");
  EXPECT_EQ(rows.names(), std::vector<std::string>{"features"});
}

TEST_F(Csv, ReadsWhatSpreadsheetsWrite) {
  const Element rows =
      read("\xEF\xBB\xBF\"a\"\"x,\n\",b\r\n\r\n\"1\", 2\r\n 3,\"4\"", {.label_column = "b"});
  EXPECT_EQ(to_string(rows["label"]), "int32[2] {2, 4}");
}

TEST_F(Csv, ReadsLinesThatEndInACarriageReturnAlone) {
  EXPECT_EQ(to_string(read("a,b\r1,2\r\r3,4\r")["features"]), "float32[2,2] {1, 2, 3, 4}");
  expect_bad("a,b\r\"1\r\n\r\",2\r", {"f.csv:2: byte 4: column 1", "\"1???\" is not a number"});
  expect_bad("a,\"b\r\r\n\"\r1,2\r\n3,x\r", {"f.csv:5: byte 16: column 2"});
}

TEST_F(Csv, ReadsGzippedFiles) {
  std::string rows = "a,b\n";
  for (int i = 0; i < 300'000; ++i) rows += "1,2\n";  // more than is decompressed at a time
  const std::string packed = gzip(rows);
  EXPECT_EQ(csv(dir_.write("f.csv.gz", packed)).cardinality(), 300'000);
  EXPECT_EQ(to_string(read(gzip("a,b\n3,4"))["features"]), "float32[1,2] {3, 4}");
  expect_bad(gzip("a,b\n1,x\n"), {"f.csv:2: byte 6: column 2 (\"b\"): \"x\" is not a number"});
  expect_error([&] { csv(dir_.write("f.csv.gz", packed.substr(0, packed.size() - 9))); },
               Code::kDataLoss, {dir_.path("f.csv.gz") + ": byte ", "truncated or corrupt"});
}

TEST_F(Csv, ReadsEachMemberOfAGzippedFile) {
  const std::string first = gzip("a,b\n1,2\n"), second = gzip("3,4\n");
  const std::string both = first + second;
  EXPECT_EQ(to_string(read(both)["features"]), "float32[2,2] {1, 2, 3, 4}");
  EXPECT_EQ(to_string(read(both + std::string(512, '\0'))["features"]),
            "float32[2,2] {1, 2, 3, 4}");
  for (size_t byte = first.size(); byte < first.size() + 2; ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = both;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      expect_error([&] { csv(dir_.write("f.csv.gz", damaged)); }, Code::kDataLoss,
                   {dir_.path("f.csv.gz") + ": byte ", "truncated or corrupt"});
    }
}

TEST_F(Csv, TakesOtherDelimitersAndDtypes) {
  const Element rows = read("1;2\t\n3; 4\n", {.label_column = "1",
                                              .has_header = false,
                                              .delimiter = ';',
                                              .dtype = DType::kInt64,
                                              .label_dtype = DType::kFloat32});
  EXPECT_EQ(to_string(rows["features"]), "int64[2,1] {1, 3}");
  EXPECT_EQ(to_string(rows["label"]), "float32[2] {2, 4}");
}

TEST_F(Csv, SaysInWhichLineAndColumnAFieldIsWrong) {
  expect_bad("a,b\n1,2\n3,x1\n", {"f.csv:3: byte 10: column 2 (\"b\"): \"x1\" is not a number"});
  expect_bad("1,2\n3,\n", {"f.csv:2: byte 6: column 2: \"\" is not a number"},
             {.has_header = false});
  expect_bad("1,2x\n", {"f.csv:1: byte 2: column 2: \"2x\""}, {.has_header = false});
  expect_bad("a,b\n\"1\n\n\",2\n5,?\n", {"f.csv:2: byte 4: column 1", "\"1??\" is not a number"});
  expect_bad("a,b\n\n\n5,?\n", {"f.csv:4: byte 8: column 2"});
  expect_bad(
      "\xEF\xBB\xBF"
      "a,b\r\n1,?\n",
      {"f.csv:2: byte 10: column 2"});
  expect_bad("a\n" + std::string(1000, 'x'), {"xxx...\" is not a number"});
}

TEST_F(Csv, SaysWhatOtherProgramsMayHaveWritten) {
  expect_bad("a;b\n1;2\n", {"f.csv:2: byte 4: column 1", "; is the delimiter \";\" (CsvOptions"});
  expect_bad(std::string("\xFF\xFE"
                         "a\0\n\0001\0",
                         8),
             {"f.csv:1: byte 0: the file is UTF-16"});
}

TEST_F(Csv, RefusesRecordsOfAnotherLength) {
  expect_bad("a,b\n1,2\n3\n", {"f.csv:3: byte 8: 1 fields where line 1 has 2"});
  expect_bad("1,2\n3,4,5\n", {"f.csv:2: byte 4: 3 fields where line 1 has 2"},
             {.has_header = false});
}

TEST_F(Csv, TakesNumbersWithASign) {
  EXPECT_EQ(to_string(read("a,b\n+1.5,-2\n")["features"]), "float32[1,2] {1.5, -2}");
  expect_bad("a\n+-1\n", {"\"+-1\" is not a number"});
  expect_bad("a\n+\n", {"\"+\" is not a number"});
}

TEST_F(Csv, ReadsNumbersTooSmallForAFloatAsZero) {
  EXPECT_EQ(to_string(read("a,b\n1e-400,+.5e-5000\n")["features"]), "float32[1,2] {0, 0}");
}

TEST_F(Csv, ReadsEveryInt64Exactly) {
  const Element row =
      read("id,y\n9007199254740993,-9223372036854775808\n+9223372036854775807,1e3\n",
           {.label_column = "y", .dtype = DType::kInt64, .label_dtype = DType::kInt64});
  EXPECT_EQ(to_string(row["features"]), "int64[2,1] {9007199254740993, 9223372036854775807}");
  EXPECT_EQ(to_string(row["label"]), "int64[2] {-9223372036854775808, 1000}");
}

TEST_F(Csv, RefusesValuesThatDoNotFit) {
  for (const char* number : {"9223372036854775808", "9007199254740993.0", "1e16", "0.5"})
    expect_bad(str("y\n", number, "\n"), {number, "is not a value of int64"},
               {.dtype = DType::kInt64});
  expect_bad("y\n1.5\n", {"f.csv:2", "\"1.5\" is not a value of int32"}, {.label_column = "y"});
  expect_bad("y\n3e9\n", {"\"3e9\" is not a value of int32"}, {.label_column = "y"});
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64})
    expect_bad("y\n-1e400\n", {"f.csv:2", str("\"-1e400\" is not a value of ", dtype)},
               {.dtype = dtype});
  expect_bad("y\n1e400x\n", {"\"1e400x\" is not a number"});
  expect_bad("y\n1e39\n", {"f.csv:2", "\"1e39\" is not a value of float32"});
  expect_bad("y\n-1e5\n", {"\"-1e5\" is not a value of float16"}, {.dtype = DType::kFloat16});
  expect_bad("y\n3.4e38\n", {"is not a value of bfloat16"}, {.dtype = DType::kBFloat16});
  EXPECT_EQ(to_string(read("y,z\n3e38,inf\n")["features"]), "float32[1,2] {3e+38, inf}");
  expect_bad("y\n256\n", {"uint8"}, {.dtype = DType::kUInt8});
  EXPECT_EQ(to_string(read("y\nnan\n")["features"]), "float32[1,1] {nan}");
  expect_bad("y\nnan\n", {"int64"}, {.dtype = DType::kInt64});
  expect_bad(
      "y\n3\n",
      {"f.csv:2: byte 2: column 1 (\"y\"): label \"3\" is out of range; there are 3 classes"},
      {.label_column = "y", .num_classes = 3});
  expect_bad("y\n-1\n", {"label \"-1\" is out of range"}, {.label_column = "y", .num_classes = 3});
}

TEST_F(Csv, RefusesFilesWithoutRecords) {
  expect_bad("", {"f.csv:1: byte 0", "empty"});
  expect_bad("\n\n", {"empty"});
  expect_bad("a,b\n", {"f.csv:1: byte 4", "no records after the header"});
  expect_error([&] { csv(dir_.path("none.csv")); }, Code::kNotFound, {dir_.path("none.csv")});
  expect_error([&] { csv(dir_.root()); }, Code::kInvalidArgument,
               {dir_.root(), "not a regular file"});
}

TEST_F(Csv, RefusesADelimiterThatMeansSomethingElse) {
  expect_error([&] { read("1", {.delimiter = '"'}); }, Code::kInvalidArgument, {"delimiter"});
}

TEST_F(Csv, RefusesBrokenQuotes) {
  expect_bad("a\n\"1\n2\n", {"f.csv:2: byte 2", "does not end"});
  expect_bad("a\n\"1\"2\n", {"f.csv:2: byte 5", "after the closing quote"});
}

TEST(CsvFile, SurvivesDamagedFiles) {
  const std::string good = "\"wi\"\"dth\",kind\r\n1.5,2\r\n\"-4e1\",0";
  const auto read = [](const std::string& path) {
    try {
      csv(path, {.label_column = "-1"});
    } catch (const Error& error) {
      if (error.code() != Code::kNotFound)
        throw;  // fewer columns, as the header may have lost its comma
    }
  };
  const TempDir dir;
  // A file cut after a complete record is a good one, so that prefixes may be read.
  for (size_t size = 0; size < good.size(); ++size) {
    try {
      read(dir.write("f.csv", good.substr(0, size)));
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(dir.path("f.csv") + ":"), std::string::npos)
          << error.message();
    }
  }
  expect_robust_to_flips("f.csv", good, read);
}

}  // namespace
}  // namespace cohort::data
