#include <numeric>

#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

Tensor random_indices(DType dtype, const Shape& shape, int64_t limit) {
  return random_tensor(dtype, shape, 0, static_cast<double>(limit), 7);
}

TEST(Gather, RowsAlongAnyAxis) {
  for (const Shape& params_shape :
       {Shape{6, 11, 40}, Shape{9}, Shape{1, 1, 1}, Shape{3, 0, 4}, Shape{0, 5}, Shape{2, 3, 1, 7}})
    for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool})
      for (DType index_dtype : {DType::kInt32, DType::kInt64, DType::kUInt8})
        for (const Shape& indices_shape : {Shape{}, Shape{0}, Shape{200}, Shape{3, 5}})
          for (int axis = 0; axis < params_shape.rank(); ++axis) {
            if (params_shape[axis] == 0 && indices_shape.num_elements() > 0) continue;
            const Tensor params = random_tensor(dtype, params_shape, 0, 100);
            const Tensor indices = random_indices(index_dtype, indices_shape, params_shape[axis]);
            const auto values = to_doubles(params), rows = to_doubles(indices);
            const int64_t outer = params_shape.count(0, axis),
                          inner = params_shape.count(axis + 1, params_shape.rank());
            std::vector<double> expected;
            for (int64_t o = 0; o < outer; ++o)
              for (double row : rows)
                for (int64_t i = 0; i < inner; ++i)
                  expected.push_back(
                      values[(o * params_shape[axis] + static_cast<int64_t>(row)) * inner + i]);
            for (int threads : {1, 2, 3})
              expect_near(expected,
                          run_kernel("Gather", {params, indices},
                                     {{dtype, {static_cast<int64_t>(expected.size())}}},
                                     {{"axis", int64_t{axis}}}, {threads, {}, threads == 2})[0],
                          0, str("Gather ", params.spec(), " at ", indices.spec()));
          }
}

// Runs the op, which must throw, and returns the message.
std::string out_of_range_message(std::string_view op, const std::vector<Tensor>& inputs,
                                 const TensorSpec& output, const Attributes& attributes) {
  try {
    run_kernel(op, inputs, {output}, attributes, {.threads = 2});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfRange);
    return error.message();
  }
  ADD_FAILURE() << op << " accepted a bad index";
  return "";
}

TEST(Gather, NamesAnIndexOutOfRange) {
  const Tensor params = Tensor::zeros(DType::kFloat32, {5, 2});
  const Attributes attributes = {{"axis", int64_t{0}}};
  EXPECT_EQ(out_of_range_message("Gather", {params, Tensor::from<int32_t>({0, 4, 5}, {3})},
                                 {DType::kFloat32, {3, 2}}, attributes),
            "Gather: index 5 at position 2 is out of range (allowed: 0 to 4)");
  EXPECT_EQ(out_of_range_message("Gather", {params, Tensor::from<int64_t>({-1}, {1})},
                                 {DType::kFloat32, {1, 2}}, attributes),
            "Gather: index -1 at position 0 is out of range (allowed: 0 to 4)");
}

// Whichever thread comes to its own first.
TEST(Gather, NamesTheFirstOfManyIndicesOutOfRange) {
  constexpr int64_t kCount = 100'000;
  const Tensor params = Tensor::zeros(DType::kFloat32, {5, 2});
  std::vector<int32_t> indices(kCount);
  std::iota(indices.begin(), indices.end(), 4);
  EXPECT_EQ(out_of_range_message("Gather", {params, Tensor::from(indices, {kCount})},
                                 {DType::kFloat32, {kCount, 2}}, {{"axis", int64_t{0}}}),
            "Gather: index 5 at position 1 is out of range (allowed: 0 to 4)");
}

TEST(Gather, AnIndexThatNamesNoRowGivesZerosWhereAllowed) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64})
    for (const int64_t columns : {0, 1, 300}) {
      const Tensor params = random_tensor(dtype, {4, columns}, 1, 100);
      const std::vector<int32_t> rows = {2, -1, 0, -1, 3};
      std::vector<double> expected;
      for (const int32_t row : rows)
        for (int64_t j = 0; j < columns; ++j)
          expected.push_back(row < 0 ? 0 : to_doubles(params)[row * columns + j]);
      for (const int threads : {1, 2})
        expect_near(expected,
                    run_kernel("Gather", {params, Tensor::from(rows, {5})}, {{dtype, {5, columns}}},
                               {{"axis", int64_t{0}}, {"allow_none", true}}, {threads})[0],
                    0, str("Gather ", params.spec()));
    }
  const Tensor params = Tensor::zeros(DType::kFloat32, {5, 2});
  const Tensor indices = Tensor::from<int32_t>({-1, -2}, {2});
  EXPECT_EQ(out_of_range_message("Gather", {params, indices}, {DType::kFloat32, {2, 2}},
                                 {{"axis", int64_t{0}}, {"allow_none", true}}),
            "Gather: index -2 at position 1 is out of range (allowed: 0 to 4, and -1 for no row)");
  EXPECT_EQ(out_of_range_message("Gather", {params, indices}, {DType::kFloat32, {2, 2}},
                                 {{"axis", int64_t{0}}, {"allow_none", false}}),
            "Gather: index -1 at position 0 is out of range (allowed: 0 to 4)");
}

void check_one_hot(const Tensor& indices, int64_t depth, DType dtype) {
  const TensorSpec output{dtype, indices.shape().with_inserted(indices.shape().rank(), depth)};
  std::vector<double> expected;
  for (const double index : to_doubles(indices))
    for (int64_t i = 0; i < depth; ++i) expected.push_back(index == static_cast<double>(i));
  for (const int threads : {1, 2, 3})
    expect_near(expected,
                run_kernel("OneHot", {indices}, {output}, {{"depth", depth}, {"dtype", dtype}},
                           {threads, {}, threads == 2})[0],
                0, str("OneHot of ", indices.spec(), " to ", output));
}

TEST(OneHot, LeavesRowsOfOtherIndicesZero) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    check_one_hot(Tensor::from<int64_t>({2, -1, 0, 3, 1}, {5}), 3, dtype);
    for (const DType index_dtype : {DType::kInt32, DType::kInt64, DType::kUInt8})
      for (const Shape& shape :
           {Shape{}, Shape{0}, Shape{1}, Shape{3, 7}, Shape{2, 0, 3}, Shape{700}})
        for (const int64_t depth : {0, 1, 10, 300}) {
          // Some are below 0, some beyond the depth.
          const double low = index_dtype == DType::kUInt8 ? 0 : -3,
                       high = static_cast<double>(depth) + 2;
          check_one_hot(random_tensor(index_dtype, shape, low, high), depth, dtype);
        }
  }
}

}  // namespace
}  // namespace cohort::testing
