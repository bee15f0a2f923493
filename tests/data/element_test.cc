#include "core/data/element.h"

#include "tests/data/testing.h"

namespace cohort::data {
namespace {

const Tensor kPair = Tensor::from<float>({1, 2}, {2});

TEST(Element, FindsTensorsByNameInTheOrderGiven) {
  const Element element{{"image", kPair}, {"label", Tensor::scalar<int32_t>(7)}};
  EXPECT_EQ(element.names(), (std::vector<std::string>{"image", "label"}));
  EXPECT_EQ(element["label"].item(), 7);
  EXPECT_TRUE(element.contains("image"));
  EXPECT_FALSE(element.contains("weight"));
  EXPECT_EQ(str(element), "{image: float32[2], label: int32[]}");
}

TEST(Element, NamesWhatItHasWhenANameIsMissing) {
  const Element element{{"image", kPair}, {"label", kPair}};
  expect_error([&] { element["lable"]; }, Code::kNotFound, {"\"lable\"", "\"image\", \"label\""});
  expect_error([] { Element()["x"]; }, Code::kNotFound, {"it has none"});
}

// 0 would be a null name.
template <typename T>
concept TakesZero = requires(const T& element) {
  element[0];
};
static_assert(!TakesZero<Element>);

TEST(Element, RefusesTwoTensorsOfOneNameAndUndefinedOnes) {
  expect_error(
      [] {
        Element({{"x", kPair}, {"x", kPair}});
      },
      Code::kInvalidArgument, {"two tensors named \"x\""});
  expect_error([] { Element({{"x", Tensor()}}); }, Code::kInvalidArgument, {"\"x\"", "no value"});
  expect_error([] { Element().set("y", Tensor()); }, Code::kInvalidArgument, {"\"y\"", "no value"});
}

TEST(Element, SetReplacesOrAdds) {
  Element element{{"x", kPair}};
  element.set("y", Tensor::scalar(1.0f));
  element.set("x", Tensor::scalar(2.0f));
  EXPECT_EQ(element.names(), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(element["x"].item(), 2);
}

TEST(Element, RowsIsTheFirstExtentOfAllTensors) {
  const Tensor three = Tensor::zeros(DType::kFloat32, {3, 2});
  EXPECT_EQ((Element{{"a", three}, {"b", Tensor::zeros(DType::kInt32, {3})}}).rows(), 3);
  expect_error(
      [&] {
        Element({{"a", three}, {"b", kPair}}).rows();
      },
      Code::kInvalidArgument, {"\"b\" has 2 rows", "\"a\" has 3"});
  expect_error(
      [&] {
        Element({{"a", Tensor::scalar(1)}}).rows();
      },
      Code::kInvalidArgument, {"\"a\" is a scalar"});
  expect_error([&] { Element().rows(); }, Code::kInvalidArgument, {"without tensors"});
}

}  // namespace
}  // namespace cohort::data
