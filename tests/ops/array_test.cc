#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/graph/gradients.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "tests/testing/error_of.h"
#include "tests/testing/evaluate.h"
#include "tests/testing/gradient_check.h"

namespace cohort {
namespace {

using namespace ops;
using testing::check_gradients;
using Values = std::vector<Value>;

TEST(ArrayGradient, OfShapeChanges) {
  check_gradients([](const Values& v) { return identity(v[0]); }, {{{2, 3}}});
  check_gradients([](const Values& v) { return require(v[0], v[1], "unless"); }, {{{2, 3}}},
                  {Tensor::scalar(true)});
  check_gradients([](const Values& v) { return reshape(v[0], {3, -1}); }, {{{2, 3}}});
  check_gradients([](const Values& v) { return flatten_from(expand_dims(v[0], 0), 1); },
                  {{{2, 3}}});
  check_gradients([](const Values& v) { return squeeze(v[0], -1); }, {{{2, 1}}});
  check_gradients([](const Values& v) { return broadcast_to(v[0], {4, 2, 3}); }, {{{2, 1}}});
}

TEST(SequenceMask, IsTrueForTheFirstPlacesOfEachLength) {
  Graph graph;
  const GraphScope scope(graph);
  const Value lengths = constant(Tensor::from<int32_t>({2, 0, 3}, {3}));
  const Tensor mask = testing::evaluate({sequence_mask(lengths, 2)})[0];
  EXPECT_EQ(mask.shape(), (Shape{3, 2}));
  const std::vector<bool> expected = {true, true, false, false, true, true};
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), mask.values<bool>().begin()));
  EXPECT_EQ(sequence_mask(lengths, 0).shape(), (Shape{3, 0}));
  EXPECT_THROW(sequence_mask(lengths, -1), Error);
  EXPECT_THROW(sequence_mask(lengths, int64_t{1} << 60), Error);
  EXPECT_THROW(sequence_mask(constant(1.5, DType::kFloat32), 2), Error);
}

TEST(ArrayGradient, OfTranspose) {
  check_gradients([](const Values& v) { return transpose(v[0]); }, {{{2, 3, 4}}});
  check_gradients([](const Values& v) { return transpose(v[0], {1, 2, 0}); }, {{{2, 3, 4}}});
  check_gradients([](const Values& v) { return transpose(v[0], {0, -1, 1}); }, {{{2, 3, 4}}});
}

TEST(ArrayGradient, OfJoiningAndCutting) {
  check_gradients(
      [](const Values& v) {
        return concat({v[0], v[1], v[0]}, -1);
      },
      {{{2, 3}}, {{2, 1}}});
  check_gradients([](const Values& v) { return slice(v[0], {1, 0}, {-1, 2}); }, {{{3, 3}}});
  check_gradients([](const Values& v) { return pad(v[0], {1, 0}, {0, 2}, 7); }, {{{2, 3}}});
}

TEST(ArrayGradient, OfSplitWhereAPartIsUnused) {
  check_gradients(
      [](const Values& v) {
        const Values parts = split(v[0], {1, 2, 1}, 0);
        return concat({square(parts[2]), parts[0]}, 0);
      },
      {{{4, 2}}});
}

TEST(ArrayGradient, OfGatherAlongAnyAxis) {
  const Tensor indices = Tensor::from<int32_t>({2, 0, 2, 1, 1, 2}, {2, 3});
  for (int64_t axis : {0, 1, -1})
    check_gradients([&](const Values& v) { return gather(v[0], v[1], axis); }, {{{3, 3, 3}}},
                    {indices});
  const Tensor scalar = Tensor::scalar<int64_t>(1);
  for (int64_t axis : {0, 1})
    check_gradients([&](const Values& v) { return gather(v[0], v[1], axis); }, {{{3, 2}}},
                    {scalar});
}

TEST(ArrayGradient, OfGatherFromAComputedTable) {
  const Tensor indices = Tensor::from<int64_t>({2, 0, 2}, {3});
  check_gradients([](const Values& v) { return gather(square(v[0]), v[1]); }, {{{3, 2}}},
                  {indices});
}

TEST(ArrayGradient, OfScatterAdd) {
  const Tensor indices = Tensor::from<int64_t>({2, 0, 2}, {3});
  check_gradients([](const Values& v) { return scatter_add(v[1], v[0], 4); }, {{{3, 2}}},
                  {indices});
}

TEST(ArrayGradient, SecondDerivativesThroughGatherAndPad) {
  const Tensor indices = Tensor::from<int64_t>({1, 0, 1}, {3});
  testing::check_second_gradients(
      [](const Values& v) {
        return square(pad(gather(square(v[0]), v[1], 1), {0, 1}, {1, 0}));
      },
      {{{2, 2}}}, {indices});
}

class Shapes : public ::testing::Test {
 protected:
  Value input(Shape shape, DType dtype = DType::kFloat32) {
    return graph_.add_input("x", {dtype, shape});
  }
  Graph graph_;
};

TEST_F(Shapes, ReshapeInfersOneExtent) {
  EXPECT_EQ(reshape(input({4, 6}), {2, -1, 3}).shape(), (Shape{2, 4, 3}));
  EXPECT_THROW(reshape(input({4, 6}), {-1, 5}), Error);
  EXPECT_THROW(reshape(input({4, 6}), {5, 5}), Error);
  EXPECT_THROW(reshape(input({0, 6}), {-1, 0}), Error);
  // Of rows that are not there, too, where their number stays.
  EXPECT_EQ(reshape(input({0, 6}), {0, 3, -1}).shape(), (Shape{0, 3, 2}));
  EXPECT_EQ(reshape(input({0, 3, 2}), {0, 3, -1}).shape(), (Shape{0, 3, 2}));
  EXPECT_EQ(reshape(input({0, 4, 6}), {0, -1, 8}).shape(), (Shape{0, 3, 8}));
  EXPECT_EQ(reshape(input({2, 0, 4}), {2, -1}).shape(), (Shape{2, 0}));
  EXPECT_THROW(reshape(input({0, 6}), {0, 5, -1}), Error);
  EXPECT_THROW(reshape(input({4, 6}), {4, -1, 4}), Error);
  try {
    reshape(input({4, 6}), {-1, -1});
    FAIL() << "two open extents";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "reshape: only one extent may be -1");
  }
}

TEST_F(Shapes, FlattenExpandAndSqueeze) {
  EXPECT_EQ(flatten_from(input({2, 3, 4}), 1).shape(), (Shape{2, 12}));
  EXPECT_EQ(flatten_from(input({}), 0).shape(), (Shape{1}));
  EXPECT_EQ(expand_dims(input({2, 3}), -1).shape(), (Shape{2, 3, 1}));
  EXPECT_THROW(expand_dims(input({2, 3}), 3), Error);
  EXPECT_EQ(squeeze(input({2, 1, 3}), 1).shape(), (Shape{2, 3}));
  EXPECT_THROW(squeeze(input({2, 1, 3}), 0), Error);
}

TEST_F(Shapes, SliceAndPadCheckEveryAxis) {
  EXPECT_EQ(slice(input({5, 4}), {1, 0}, {-1, 3}).shape(), (Shape{4, 3}));
  EXPECT_THROW(slice(input({5, 4}), {1, 0}, {5, 4}), Error);
  EXPECT_THROW(slice(input({5, 4}), {-1, 0}, {1, 4}), Error);
  EXPECT_THROW(slice(input({5, 4}), {1}, {1}), Error);
  EXPECT_EQ(pad(input({5, 4}), {1, 0}, {1, 2}).shape(), (Shape{7, 6}));
  EXPECT_THROW(pad(input({5, 4}), {-1, 0}, {0, 0}), Error);
  EXPECT_THROW(require(input({5, 4}), input({}), "unless"), Error);
}

TEST_F(Shapes, PaddingIsANumberOfTheDtype) {
  const Value bytes = input({1}, DType::kUInt8);
  for (const double value : {300.0, -1.0, 0.5}) {
    const Error error = testing::error_of([&] { pad(bytes, {1}, {0}, value); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(),
              str("Pad: op Pad(uint8[1]): the number ", value, " is not a value of uint8"));
  }
  EXPECT_EQ(pad(bytes, {1}, {0}, 255).shape(), Shape{2});
  EXPECT_EQ(pad(input({1}), {1}, {0}, -INFINITY).shape(), Shape{2});
}

TEST_F(Shapes, ConcatAndSplitAreInverse) {
  EXPECT_EQ(concat({input({2, 3}), input({2, 4})}, 1).shape(), (Shape{2, 7}));
  EXPECT_THROW(concat({input({2, 3}), input({3, 4})}, 1), Error);
  EXPECT_THROW(concat({}, 0), Error);
  EXPECT_THROW(split(input({7}), {3, 3}, 0), Error);
  EXPECT_THROW(split(input({7}), {8, -1}, 0), Error);
}

// Of what is found before there is a node, which would have a name.
TEST_F(Shapes, ErrorsNameTheScopeAndTheFunction) {
  const NameScope scope("encoder");
  const Value x = input({2, 3}), image = input({1, 4, 4, 1});
  const std::string out_of_range = "axis 2 is out of range for shape [2,3] (allowed: -2 to 1)";
  const std::pair<std::function<void()>, std::string> mistakes[] = {
      {[&] { argmax(x, 2); }, "argmax: " + out_of_range},
      {[&] { cumsum(x, 2); }, "cumsum: " + out_of_range},
      {[&] { cumprod(x, 2); }, "cumprod: " + out_of_range},
      {[&] { reduce_sum(x, {2}); }, "ReduceSum: " + out_of_range},
      {[&] {
         reduce_sum(x, {1, -1});
       },
       "ReduceSum: axis 1 of [2,3] is given twice"},
      {[&] { gather(x, cast(x, DType::kInt32), 2); }, "gather: " + out_of_range},
      {[&] {
         concat({x, x}, 2);
       },
       "concat: " + out_of_range},
      {[&] { concat({}, 0); }, "concat: there is nothing to join"},
      {[&] { split(x, {3}, 2); }, "split: " + out_of_range},
      {[&] {
         transpose(x, {0, 2});
       },
       "transpose: " + out_of_range},
      {[&] { flatten_from(x, 2); }, "flatten_from: " + out_of_range},
      {[&] { squeeze(x, 2); }, "squeeze: " + out_of_range},
      {[&] { squeeze(x, 0); }, "squeeze: axis 0 of [2,3] is not 1 long"},
      {[&] { expand_dims(x, 3); },
       "expand_dims: axis 3 is out of range for shape [2,3] (allowed: -3 to 2)"},
      {[&] {
         reshape(x, {-1, -1});
       },
       "reshape: only one extent may be -1"},
      {[&] { clip(x, 2, 1); }, "clip: the lower bound 2 is not below the upper bound 1"},
      {[&] { cast(x, DType::kInt32) * 0.5; }, "constant: the number 0.5 is not a value of int32"},
      {[&] { cast(x, DType::kInt64) * 1e16; },
       "constant: the number 1e+16 is beyond 2^53, where a double may stand for another int64; "
       "give "
       "it as a constant tensor"},
      {[&] { max_pool2d(x); }, "MaxPool2D: x must have 4 axes, has shape [2,3]"},
      {[&] {
         avg_pool2d(image, {.size = {0, 2}, .padding = Padding::same()});
       },
       "AvgPool2D: a window must be 1 to 2147483647, is 0"},
      {[&] { conv2d(x, image); }, "conv2d: x must have 4 axes, has shape [2,3]"},
      {[&] {
         conv2d_transpose(x, image, {4, 4});
       },
       "conv2d_transpose: y must have 4 axes, has shape [2,3]"}};
  for (const auto& [mistake, message] : mistakes) {
    const Error error = testing::error_of(mistake);
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_EQ(error.message(), "encoder/" + message);
  }
}

TEST_F(Shapes, AnEmptyValueIsTheCallersError) {
  try {
    reduce_sum(Value());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
  }
}

TEST_F(Shapes, ResultsLargerThanAnyMemoryAreRefused) {
  EXPECT_THROW(broadcast_to(input({}), {int64_t{1} << 31, int64_t{1} << 31}), Error);
}

TEST_F(Shapes, RowsOfAllReplicasTogetherMustBeANumber) {
  const std::vector<int64_t> extents = {std::numeric_limits<int64_t>::max(), 1};
  const Value x = input({1, 2});
  for (const bool scatters : {false, true}) {
    try {
      if (scatters)
        reduce_scatter(x, extents, 1);
      else
        all_gather(x, extents);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find("add up to more than"), std::string::npos) << error.message();
    }
  }
}

TEST(MatMulGradient, OfAllTransposesAndBatches) {
  for (bool ta : {false, true})
    for (bool tb : {false, true}) {
      const Shape a = ta ? Shape{4, 2} : Shape{2, 4}, b = tb ? Shape{3, 4} : Shape{4, 3};
      const auto product = [&](const Values& v) { return matmul(v[0], v[1], {ta, tb}); };
      SCOPED_TRACE(str("transposes ", ta, tb));
      check_gradients(product, {{a}, {b}});
      check_gradients(product, {{a.with_inserted(0, 2)}, {b.with_inserted(0, 2)}});
      check_gradients(product, {{a.with_inserted(0, 2)}, {b}});
      testing::check_second_gradients(product, {{a}, {b}});
    }
}

TEST(MatMul, SaysWhatDoesNotFit) {
  Graph graph;
  const NameScope scope("dense_1");
  const Value a = graph.add_input("a", {DType::kFloat32, {128, 784}});
  const Value b = graph.add_input("b", {DType::kFloat32, {512, 10}});
  try {
    matmul(a, b);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.message(),
              "dense_1/MatMul: op MatMul(float32[128,784], float32[512,10]): inner sizes differ: a "
              "has 784 columns, "
              "b has 512 rows");
  }
}

}  // namespace
}  // namespace cohort
