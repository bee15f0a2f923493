#include <random>

#include "core/tensor/scatter_op.h"
#include "tests/kernels/cpu/kernel_testing.h"

namespace cohort::testing {
namespace {

constexpr ScatterOp kOps[] = {ScatterOp::kAdd, ScatterOp::kSub, ScatterOp::kMul,   ScatterOp::kDiv,
                              ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate};
constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16,
                              DType::kInt32,   DType::kInt64,   DType::kUInt8};

struct Sizes {
  int64_t rows, count, columns;
};
// On either side of the limits at which the CPU's threads share the work by columns, by rows, or
// not at all. A GPU's compare each index with all others, which takes the host long where it is
// one.
std::vector<Sizes> all_sizes() {
  const int64_t many = tested_device().type == DeviceType::kCpu ? 20000 : 2000;
  return {{7, 30, 5}, {50, many, 1}, {50, many * 3 / 20, 7}, {30, 400, 100}, {3, 0, 4},
          {4, 5, 0},  {1, 9, 2}};
}

// Some name no row, where the dtype has a sign; about half of the rows are named.
Tensor random_indices(DType dtype, const Sizes& sizes) {
  std::mt19937_64 random(kSeed);
  Tensor indices(DType::kInt64, {sizes.count});
  for (int64_t i = 0; i < sizes.count; ++i)
    indices.data<int64_t>()[i] = dtype != DType::kUInt8 && random() % 5 == 0
                                     ? -1
                                     : static_cast<int64_t>(random() % sizes.rows) / 2;
  return indices.cast(dtype);
}

// Small whole numbers, which every dtype holds; not 0, so that they can divide.
Tensor small_numbers(DType dtype, const Shape& shape, int limit, uint64_t stream) {
  std::mt19937_64 random(kSeed + stream);
  Tensor t(DType::kFloat64, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<double>()[i] = 1 + static_cast<double>(random() % static_cast<uint64_t>(limit));
  return t.cast(dtype);
}

// One element, computed as the dtype does: integers wrap around.
template <typename T>
double apply(ScatterOp op, double at, double update) {
  using Wide = std::conditional_t<sizeof(T) == 2, float, T>;
  using Ring = std::conditional_t<std::is_integral_v<T>, uint64_t, Wide>;
  const Wide a = static_cast<Wide>(at), b = static_cast<Wide>(update);
  const Ring x = static_cast<Ring>(a), y = static_cast<Ring>(b);
  Wide result = b;
  if (op == ScatterOp::kAdd) result = static_cast<Wide>(x + y);
  if (op == ScatterOp::kSub) result = static_cast<Wide>(x - y);
  if (op == ScatterOp::kMul) result = static_cast<Wide>(x * y);
  if (op == ScatterOp::kDiv) result = static_cast<Wide>(a / b);
  if (op == ScatterOp::kMin) result = std::min(a, b);
  if (op == ScatterOp::kMax) result = std::max(a, b);
  return static_cast<double>(static_cast<T>(result));
}

std::vector<double> reference(ScatterOp op, const Tensor& target, const Tensor& indices,
                              const Tensor& updates, int64_t columns) {
  auto values = to_doubles(target);
  const auto rows = to_doubles(indices), changes = to_doubles(updates);
  dispatch(NumberTypes{}, target.dtype(), "reference", [&]<typename T>() {
    for (size_t i = 0; i < rows.size(); ++i)
      for (int64_t j = 0; j < columns && rows[i] >= 0; ++j) {
        double& at = values[static_cast<int64_t>(rows[i]) * columns + j];
        at = apply<T>(op, at, changes[i * columns + j]);
      }
  });
  return values;
}

// Runs AssignScatter on `variable`'s own memory.
void assign_scatter(ScatterOp op, const Tensor& indices, const Tensor& updates, Tensor& variable,
                    int threads = 1, bool allow_none = true) {
  set_num_threads(threads);
  const Attributes attributes = {{"op", static_cast<int64_t>(op)}, {"allow_none", allow_none}};
  const KernelSpec spec{"AssignScatter",   {indices.spec(), updates.spec()},
                        {variable.spec()}, attributes,
                        tested_device(),   num_threads()};
  const auto kernel = make_tested_kernel(spec);
  const void* inputs[] = {indices.raw(), updates.raw()};
  void* outputs[] = {variable.raw()};
  try {
    const StepInfo step;
    run_tested_kernel(*kernel, spec, {inputs, outputs, nullptr, step});
  } catch (...) {
    set_num_threads(1);
    throw;
  }
  set_num_threads(1);
}

TEST(ScatterAdd, AddsDuplicatesInOrderOnAnyNumberOfThreads) {
  for (const Sizes& c : all_sizes())
    for (const DType dtype : kNumbers) {
      const Tensor indices = random_indices(DType::kInt64, c);
      const Tensor updates = small_numbers(dtype, {c.count, c.columns}, 3, 1);
      const TensorSpec output{dtype, {c.rows, c.columns}};
      // 16-bit numbers are rounded after the last addition.
      const DType wide = is_half(dtype) ? DType::kFloat32 : dtype;
      const auto sums = reference(ScatterOp::kAdd, Tensor::zeros(wide, output.shape), indices,
                                  updates.cast(wide), c.columns);
      const auto one =
          run_kernel("ScatterAdd", {indices, updates}, {output}, {{"rows", c.rows}})[0];
      expect_near(to_doubles(Tensor::from(sums, output.shape).cast(dtype)), one, 0,
                  str("ScatterAdd ", updates.spec()));
      for (const int threads : {2, 3})
        expect_same_bytes(one,
                          run_kernel("ScatterAdd", {indices, updates}, {output}, {{"rows", c.rows}},
                                     {threads, {}, true})[0],
                          "ScatterAdd");
    }
}

TEST(ScatterAdd, RoundsSumsOf16BitNumbersOnce) {
  constexpr int64_t kCount = 4096;
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const TensorSpec sum{dtype, {1}};
    const Tensor indices = Tensor::zeros(DType::kInt32, {kCount}),
                 ones = Tensor::full(dtype, {kCount}, 1);
    expect_near({kCount},
                run_kernel("ScatterAdd", {indices, ones}, {sum}, {{"rows", int64_t{1}}})[0], 0,
                str(dtype));
  }
}

TEST(ScatterAdd, NamesAnIndexOutOfRange) {
  const Tensor updates = Tensor::zeros(DType::kFloat32, {2, 2});
  for (const int32_t wrong : {9, 3, -2}) {
    const Tensor indices = Tensor::from<int32_t>({-1, wrong}, {2});
    try {
      run_kernel("ScatterAdd", {indices, updates}, {{DType::kFloat32, {3, 2}}},
                 {{"rows", int64_t{3}}}, {.threads = 2});
      ADD_FAILURE() << "index " << wrong << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kOutOfRange);
      EXPECT_EQ(error.message(), str("ScatterAdd: index ", wrong,
                                     " at position 1 is out of range (allowed: 0 to 2, and -1 for "
                                     "no row)"));
    }
  }
}

TEST(AssignScatter, ChangesTheNamedRowsInOrderOnAnyNumberOfThreads) {
  for (const Sizes& c : all_sizes())
    for (const DType dtype : kNumbers)
      for (const ScatterOp op : kOps) {
        const Tensor indices = random_indices(DType::kInt32, c);
        const Tensor updates = small_numbers(dtype, {c.count, c.columns}, 3, 1);
        const Tensor start = small_numbers(dtype, {c.rows, c.columns}, 100, 2);
        const std::string what =
            str("op ", static_cast<int>(op), " ", start.spec(), " by ", updates.spec());
        Tensor one = start.clone();
        assign_scatter(op, indices, updates, one);
        expect_near(reference(op, start, indices, updates, c.columns), one, 0, what);
        for (const int threads : {2, 3}) {
          Tensor several = start.clone();
          assign_scatter(op, indices, updates, several, threads);
          expect_same_bytes(one, several, what);
        }
      }
}

TEST(AssignScatter, TakesIndicesOfAnyIntegers) {
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kUInt8}) {
    Tensor variable = Tensor::from<float>({1, 2, 3}, {3});
    assign_scatter(ScatterOp::kUpdate, Tensor::from<int32_t>({2, 0, 2}, {3}).cast(dtype),
                   Tensor::from<float>({7, 8, 9}, {3}), variable);
    expect_near({8, 2, 9}, variable, 0, str(dtype));
  }
}

TEST(AssignScatter, IntegersDivideTowardsZeroAndNeverTrap) {
  Tensor variable = Tensor::from<int32_t>({-7, 7, std::numeric_limits<int32_t>::min(), 5}, {4});
  assign_scatter(ScatterOp::kDiv, Tensor::from<int32_t>({0, 1, 2, 3}, {4}),
                 Tensor::from<int32_t>({2, -2, -1, 0}, {4}), variable);
  expect_near({-3, -3, std::numeric_limits<int32_t>::min(), 0}, variable, 0, "quotients");
}

TEST(AssignScatter, RefusesAnIndexOfNoRowWhereItIsNotAllowed) {
  const Tensor start = Tensor::from<float>({1, 2, 3}, {3});
  Tensor variable = start.clone();
  const auto scatter_to = [&](int64_t row) {
    assign_scatter(ScatterOp::kAdd, Tensor::from<int64_t>({0, row}, {2}),
                   Tensor::from<float>({5, 5}, {2}), variable, 1, false);
  };
  try {
    scatter_to(-1);
    ADD_FAILURE() << "index -1 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfRange);
    EXPECT_EQ(error.message(),
              "AssignScatter: index -1 at position 1 is out of range (allowed: 0 to 2)");
  }
  expect_same_bytes(start, variable, "after index -1");
  scatter_to(2);
  expect_near({6, 2, 8}, variable, 0, "rows 0 and 2");
}

TEST(AssignScatter, LeavesTheVariableAloneOnErrors) {
  const Tensor start = Tensor::full(DType::kFloat32, {4, 3}, 1);
  Tensor variable = start.clone();
  const Tensor updates = Tensor::full(DType::kFloat32, {2, 3}, 5);
  for (const int64_t wrong : {4, -2})
    EXPECT_THROW(assign_scatter(ScatterOp::kUpdate, Tensor::from<int64_t>({0, wrong}, {2}), updates,
                                variable),
                 Error);
  expect_same_bytes(start, variable, "after an index out of range");
  EXPECT_THROW(assign_scatter(static_cast<ScatterOp>(7), Tensor::from<int64_t>({0, 1}, {2}),
                              updates, variable),
               Error);
  expect_same_bytes(start, variable, "after an unknown op");
}

}  // namespace
}  // namespace cohort::testing
