#include <algorithm>
#include <functional>
#include <numeric>

#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

using Dims = std::vector<int64_t>;

// One dtype of each element size, and bool.
const std::vector<DType> kSizes = {DType::kUInt8, DType::kBFloat16, DType::kFloat32, DType::kInt64,
                                   DType::kBool};

// The tensor whose element at `position` is `x` at source(position).
Tensor rearranged(const Tensor& x, const Shape& shape,
                  const std::function<Dims(const Dims&)>& source) {
  Tensor y(x.dtype(), shape);
  const size_t size = dtype_size(x.dtype());
  for (int64_t i = 0; i < y.num_elements(); ++i) {
    const int64_t from = ravel_broadcast(source(unravel(i, shape)), x.shape());
    std::memcpy(static_cast<char*>(y.raw()) + i * size,
                static_cast<const char*>(x.raw()) + from * size, size);
  }
  return y;
}

TEST(Transpose, AllPermutationsAndSizes) {
  const std::vector<Shape> shapes = {{},         {5},           {0, 3},         {1, 7},
                                     {33, 65},   {100, 16},     {3, 1, 5},      {2, 17, 40},
                                     {2, 0, 3},  {2, 9, 4, 16}, {3, 18, 5, 20}, {2, 3, 1, 4, 2},
                                     {128, 300}, {1, 1, 1}};
  for (const Shape& shape : shapes) {
    Dims perm(shape.rank());
    std::iota(perm.begin(), perm.end(), 0);
    do {
      Dims dims;
      for (int64_t axis : perm) dims.push_back(shape[static_cast<int>(axis)]);
      for (DType dtype : kSizes) {
        const Tensor x = random_tensor(dtype, shape, 0, 255);
        const Tensor expected = rearranged(x, Shape(dims), [&](const Dims& position) {
          Dims source(position.size());
          for (size_t i = 0; i < perm.size(); ++i) source[perm[i]] = position[i];
          return source;
        });
        for (int threads : {1, 2})
          expect_same_bytes(expected,
                            run_kernel("Transpose", {x}, {expected.spec()}, {{"perm", perm}},
                                       {threads, {}, threads == 2})[0],
                            str("Transpose ", x.spec(), " to ", expected.spec()));
      }
    } while (std::next_permutation(perm.begin(), perm.end()));
  }
}

TEST(ConcatAndSplit, AreInverse) {
  for (const auto& [shape, sizes] : std::vector<std::pair<Shape, Dims>>{{{7, 9, 5}, {1, 4, 0, 2}},
                                                                        {{12, 20, 400}, {1, 20, 1}},
                                                                        {{2, 0, 3}, {2, 2}},
                                                                        {{50, 1, 1}, {1, 1, 1}},
                                                                        {{1, 1, 40000}, {1}}})
    for (int axis = 0; axis < 3; ++axis)
      for (DType dtype : kSizes) {
        const Shape whole =
            shape.with_dim(axis, std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
        const Tensor x = random_tensor(dtype, whole, 0, 255);
        std::vector<Tensor> parts;
        std::vector<TensorSpec> specs;
        int64_t begin = 0;
        for (int64_t size : sizes) {
          parts.push_back(rearranged(x, whole.with_dim(axis, size), [&](Dims position) {
            position[axis] += begin;
            return position;
          }));
          specs.push_back(parts.back().spec());
          begin += size;
        }
        for (int threads : {1, 3}) {
          const auto split = run_kernel("Split", {x}, specs,
                                        {{"axis", int64_t{axis}}, {"sizes", sizes}}, {threads});
          for (size_t i = 0; i < parts.size(); ++i)
            expect_same_bytes(parts[i], split[i], str("Split ", x.spec()));
          const auto joined = run_kernel("Concat", parts, {x.spec()}, {{"axis", int64_t{axis}}},
                                         {threads, {}, true});
          expect_same_bytes(x, joined[0], str("Concat to ", x.spec()));
        }
      }
}

TEST(SliceAndPad, CopyABox) {
  struct Case {
    Shape shape;
    Dims begin, size;
  };
  for (const auto& [shape, begin, size] :
       std::vector<Case>{{{}, {}, {}},
                         {{9}, {2}, {5}},
                         {{9, 700}, {1, 3}, {6, 690}},
                         {{9, 7}, {0, 6}, {9, 1}},
                         {{4, 5, 6}, {1, 0, 2}, {2, 5, 3}},
                         {{4, 5, 6}, {4, 0, 2}, {0, 5, 3}},
                         {{2, 20, 20, 3}, {0, 1, 1, 0}, {2, 18, 18, 3}}})
    for (DType dtype : kSizes) {
      const Tensor x = random_tensor(dtype, shape, 0, 2);
      const Tensor part = rearranged(x, Shape(size), [&begin = begin](Dims position) {
        for (size_t i = 0; i < position.size(); ++i) position[i] += begin[i];
        return position;
      });
      const auto slice = run_kernel("Slice", {x}, {part.spec()}, {{"begin", begin}, {"size", size}},
                                    {.threads = 2, .misaligned = true})[0];
      expect_same_bytes(part, slice, str("Slice of ", x.spec()));

      Dims after;
      for (size_t i = 0; i < size.size(); ++i)
        after.push_back(shape[static_cast<int>(i)] - begin[i] - size[i]);
      Tensor padded = Tensor::full(dtype, shape, 1);
      const size_t bytes = dtype_size(dtype);
      for (int64_t i = 0; i < part.num_elements(); ++i) {
        Dims position = unravel(i, part.shape());
        for (size_t k = 0; k < position.size(); ++k) position[k] += begin[k];
        std::memcpy(static_cast<char*>(padded.raw()) + ravel_broadcast(position, shape) * bytes,
                    static_cast<const char*>(part.raw()) + i * bytes, bytes);
      }
      const auto pad =
          run_kernel("Pad", {part}, {x.spec()},
                     {{"before", begin}, {"after", after}, {"value", 1.0}}, {.threads = 2})[0];
      expect_same_bytes(padded, pad, str("Pad to ", x.spec()));
    }
}

TEST(Identity, CopiesOrRunsInPlace) {
  for (const char* op : {"Identity", "StopGradient", "CustomGradient", "AssignVariable"})
    for (int64_t n : {0, 1, 100'001})
      for (int in_place : {-1, 0}) {
        const Tensor x = random_tensor(DType::kBFloat16, {n}, -1, 1);
        const RunOptions options{.threads = 2, .in_place_output = in_place, .in_place_input = 0};
        expect_same_bytes(x, run_kernel(op, {x}, {x.spec()}, {}, options)[0], op);
      }
}

TEST(Require, CopiesOrFailsWithItsMessage) {
  const Attributes attributes = {{"message", std::string("not like this")}};
  for (DType dtype : kSizes)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3, 0, 2}, Shape{7}, Shape{3, 41, 277}}) {
      const Tensor x = random_tensor(dtype, shape, 0, 255);
      for (int in_place : {-1, 0})
        expect_same_bytes(
            x,
            run_kernel("Require", {x, Tensor::scalar(true)}, {x.spec()}, attributes,
                       {.threads = 2, .in_place_output = in_place, .in_place_input = 0})[0],
            str("Require of ", x.spec()));
      try {
        run_kernel("Require", {x, Tensor::scalar(false)}, {x.spec()}, attributes);
        ADD_FAILURE() << "went on with " << x.spec();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kOutOfRange);
        EXPECT_EQ(error.message(), "not like this");
      }
    }
}

}  // namespace
}  // namespace cohort::testing
