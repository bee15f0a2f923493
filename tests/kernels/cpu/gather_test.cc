#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

Tensor random_indices(DType dtype, const Shape& shape, int64_t limit) {
  return random_tensor(dtype, shape, 0, static_cast<double>(limit), 7);
}

TEST(Gather, RowsAlongAnyAxis) {
  const Shape params_shape{6, 11, 40};
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool})
    for (DType index_dtype : {DType::kInt32, DType::kInt64, DType::kUInt8})
      for (const Shape& indices_shape : {Shape{}, Shape{0}, Shape{200}, Shape{3, 5}})
        for (int axis = 0; axis < 3; ++axis) {
          const Tensor params = random_tensor(dtype, params_shape, 0, 100);
          const Tensor indices = random_indices(index_dtype, indices_shape, params_shape[axis]);
          const auto values = to_doubles(params), rows = to_doubles(indices);
          const int64_t outer = params_shape.count(0, axis),
                        inner = params_shape.count(axis + 1, 3);
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

TEST(ScatterAdd, AddsDuplicatesInOrderOnAnyNumberOfThreads) {
  struct Case {
    int64_t rows, count, columns;
  };
  for (const Case& c : {Case{7, 30, 5}, Case{50, 20000, 1}, Case{50, 3000, 7}, Case{30, 400, 100},
                        Case{3, 0, 4}, Case{4, 5, 0}})
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kBFloat16}) {
      const Tensor indices = random_indices(DType::kInt64, {c.count}, c.rows);
      const bool half = dtype == DType::kBFloat16;  // small integers, so that sums are exact
      const Tensor updates =
          half ? random_tensor(DType::kInt32, {c.count, c.columns}, 0, 2).cast(dtype)
               : random_tensor(dtype, {c.count, c.columns}, -2, 2);
      if (half && c.count > 1000) continue;
      std::vector<double> expected(c.rows * c.columns);
      const auto values = to_doubles(updates);
      for (int64_t i = 0; i < c.count; ++i)
        for (int64_t j = 0; j < c.columns; ++j)
          expected[indices.values<int64_t>()[i] * c.columns + j] += values[i * c.columns + j];
      const TensorSpec output{dtype, {c.rows, c.columns}};
      const auto one =
          run_kernel("ScatterAdd", {indices, updates}, {output}, {{"rows", c.rows}})[0];
      expect_near(expected, one, 10 * tolerance(dtype), str("ScatterAdd ", updates.spec()));
      for (int threads : {2, 3})
        expect_same_bytes(one,
                          run_kernel("ScatterAdd", {indices, updates}, {output}, {{"rows", c.rows}},
                                     {threads, {}, true})[0],
                          "ScatterAdd");
    }
}

TEST(ScatterAdd, NamesAnIndexOutOfRange) {
  EXPECT_EQ(
      out_of_range_message(
          "ScatterAdd", {Tensor::from<int32_t>({9}, {1}), Tensor::zeros(DType::kFloat32, {1, 2})},
          {DType::kFloat32, {3, 2}}, {{"rows", int64_t{3}}}),
      "ScatterAdd: index 9 at position 0 is out of range (allowed: 0 to 2)");
}

TEST(AssignScatterAdd, AddsToTheVariableInPlaceAndLeavesItAloneOnErrors) {
  Tensor variable = Tensor::full(DType::kFloat32, {4, 3}, 1);
  const Tensor updates = random_tensor(DType::kFloat32, {2, 3}, -1, 1);
  const auto run = [&](const Tensor& indices) {
    const Attributes none;
    const auto kernel = make_kernel({"AssignScatterAdd",
                                     {indices.spec(), updates.spec()},
                                     {variable.spec()},
                                     none,
                                     Device{},
                                     1});
    const void* inputs[] = {indices.raw(), updates.raw()};
    void* outputs[] = {variable.raw()};
    kernel->run({inputs, outputs, nullptr, StepInfo{}});
  };
  EXPECT_THROW(run(Tensor::from<int32_t>({0, 4}, {2})), Error);
  expect_near(std::vector<double>(12, 1.0), variable, 0, "variable after an error");
  run(Tensor::from<int32_t>({2, 2}, {2}));
  for (int64_t j = 0; j < 3; ++j) {
    EXPECT_FLOAT_EQ(variable.data<float>()[6 + j],
                    1 + updates.data<float>()[j] + updates.data<float>()[3 + j]);
    EXPECT_EQ(variable.data<float>()[j], 1);
  }
}

TEST(OneHot, LeavesRowsOfOtherIndicesZero) {
  const auto indices = Tensor::from<int64_t>({2, -1, 0, 3, 1}, {5});
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32, DType::kBool}) {
    const auto y = run_kernel("OneHot", {indices}, {{dtype, {5, 3}}},
                              {{"depth", int64_t{3}}, {"dtype", dtype}},
                              {.threads = 2, .misaligned = true})[0];
    expect_near({0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 0}, y, 0, "OneHot");
  }
}

}  // namespace
}  // namespace cohort::testing
