#include <map>

#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

TEST(CombineSlices, AddsSlicesOfOneRowAtItsFirstPlace) {
  for (const DType index : {DType::kInt32, DType::kInt64}) {
    const auto out = run_kernel("CombineSlices",
                                {Tensor::from<int64_t>({7, 3, -1, 7, 0, 3, 7}, {7}).cast(index),
                                 Tensor::from<float>({1, 2, 4, 8, 16, 32, 64}, {7})},
                                {{index, {7}}, {DType::kFloat32, {7}}});
    expect_near({7, 3, -1, -1, 0, -1, -1}, out[0], 0, "indices");
    expect_near({73, 34, 0, 0, 16, 0, 0}, out[1], 0, "values");
  }
}

TEST(CombineSlices, IntegerSumsWrapAround) {
  const Tensor rows = Tensor::from<int64_t>({4, 4}, {2});
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUInt8}) {
    const Tensor highest = Tensor::full(dtype, {2}, INFINITY);
    const auto out = run_kernel("CombineSlices", {rows, highest}, {rows.spec(), highest.spec()})[1];
    const double twice = dtype == DType::kUInt8 ? 254 : -2;
    expect_near({twice, 0}, out, 0, str("sums of ", dtype));
  }
}

TEST(CombineSlices, AgreesWithAMapOnAnyNumberOfThreads) {
  struct Case {
    int64_t slices, rows, columns;
  };
  for (const Case& c : {Case{0, 1, 4}, Case{1, 1, 0}, Case{500, 20, 7}, Case{4000, 100'000, 3},
                        Case{60, 5, 700}, Case{3000, 1, 2}})
    for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt32}) {
      Tensor indices = random_tensor(DType::kInt64, {c.slices}, 0, static_cast<double>(c.rows));
      for (int64_t i = 0; i < c.slices; ++i)  // far apart, as rows of a large table are
        indices.data<int64_t>()[i] = (indices.data<int64_t>()[i] - 1) * 1'000'003;
      for (int64_t i = 0; i < c.slices; i += 5) indices.data<int64_t>()[i] = -1;
      const Tensor values = random_tensor(dtype, {c.slices, c.columns}, -2, 2, 3);
      const auto numbers = to_doubles(values);
      std::map<int64_t, int64_t> first;
      std::vector<double> rows(static_cast<size_t>(c.slices), -1), sums(numbers.size());
      for (int64_t i = 0; i < c.slices; ++i) {
        const int64_t row = indices.data<int64_t>()[i];
        if (row == -1) continue;
        const auto [place, is_new] = first.try_emplace(row, i);
        if (is_new) rows[static_cast<size_t>(i)] = static_cast<double>(row);
        for (int64_t j = 0; j < c.columns; ++j)
          sums[static_cast<size_t>(place->second * c.columns + j)] +=
              numbers[static_cast<size_t>(i * c.columns + j)];
      }
      const std::vector<TensorSpec> specs = {indices.spec(), values.spec()};
      const auto one = run_kernel("CombineSlices", {indices, values}, specs);
      expect_near(rows, one[0], 0, "indices");
      expect_near(sums, one[1], dtype == DType::kFloat32 ? 1e-4 : tolerance(dtype), "values");
      for (const int threads : {2, 3})
        expect_same_bytes(
            one[1],
            run_kernel("CombineSlices", {indices, values}, specs, {}, {.threads = threads})[1],
            str(threads, " threads"));
    }
}

TEST(CombineSlices, ForgetsTheStepBefore) {
  const Attributes attributes;
  Tensor indices = Tensor::from<int64_t>({4, 4}, {2}), values = Tensor::from<float>({1, 2}, {2});
  Tensor rows(DType::kInt64, {2}), sums(DType::kFloat32, {2});
  const auto kernel = make_kernel({"CombineSlices",
                                   {indices.spec(), values.spec()},
                                   {rows.spec(), sums.spec()},
                                   attributes,
                                   Device{},
                                   1});
  const auto run = [&] {
    const void* inputs[] = {indices.raw(), values.raw()};
    void* outputs[] = {rows.raw(), sums.raw()};
    kernel->run({inputs, outputs, nullptr, {}});
  };
  run();
  expect_near({3, 0}, sums, 0, "one row");
  indices = Tensor::from<int64_t>({5, 4}, {2});
  run();
  expect_near({5, 4}, rows, 0, "two rows");
  expect_near({1, 2}, sums, 0, "two rows");
}

}  // namespace
}  // namespace cohort::testing
