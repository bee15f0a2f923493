#include "tests/strategies/conformance_programs.h"

#include "core/ops/array_ops.h"
#include "core/ops/embedding_ops.h"
#include "core/ops/math_ops.h"

namespace cohort {
namespace {

Value squared_error(const Value& predicted, const BatchValues& batch) {
  const Value error = predicted - batch["y"];
  return ops::reduce_sum(error * error) / static_cast<double>(batch.global_rows());
}

}  // namespace

Program perceptron(DType dtype, const std::vector<int64_t>& hidden) {
  Program program;
  int64_t width = 3;
  double salt = 1;
  auto sizes = hidden;
  sizes.push_back(2);
  for (const int64_t size : sizes) {
    program.variables.push_back(weight("kernel", dtype, {width, size}, ++salt));
    program.variables.push_back(weight("bias", dtype, {size}, ++salt));
    width = size;
  }
  program.loss = [weights = program.variables](const BatchValues& batch) {
    Value x = batch["x"];
    for (size_t i = 0; i < weights.size(); i += 2) {
      x = ops::matmul(x, weights[i]->read()) + weights[i + 1]->read();
      if (i + 2 < weights.size()) x = ops::tanh(x);
    }
    return squared_error(x, batch);
  };
  return program;
}

Program embedding(DType dtype) {
  Program program;
  const auto table = weight("table", dtype, {11, 4}, 3),
             kernel = weight("kernel", dtype, {8, 2}, 4);
  program.variables = {table, kernel};
  program.loss = [=](const BatchValues& batch) {
    const Value rows = ops::gather(table->read(), batch["ids"]);
    return squared_error(ops::matmul(ops::reshape(rows, {batch.rows(), 8}), kernel->read()), batch);
  };
  return program;
}

Program embedding_bag(DType dtype) {
  const auto table = weight("table", dtype, {11, 2}, 3);
  return {{table}, [=](const BatchValues& batch) {
            const Value& ids = batch["ids"];
            const Value some = ops::where(ops::greater(ids, ops::constant(6, ids.dtype())),
                                          ops::constant(-1, ids.dtype()), ids);
            const Value weights = ops::slice(batch["x"], {0, 0}, {-1, 2});
            return squared_error(
                ops::safe_embedding_lookup_sparse(table->read(), some, weights) +
                    ops::embedding_lookup_sparse(table->read(), some, {}, ops::Combiner::kSqrtN),
                batch);
          }};
}

Program odd_parameters(DType dtype) {
  const auto shared = weight("shared", dtype, {3, 3}, 5),
             frozen = weight("frozen", dtype, {3, 2}, 6), unused = weight("unused", dtype, {4}, 7);
  return {{unused, shared}, [=](const BatchValues& batch) {
            const Value once = ops::tanh(ops::matmul(batch["x"], shared->read()));
            const Value twice = ops::matmul(once, shared->read());
            return squared_error(ops::matmul(twice, frozen->read()), batch);
          }};
}

data::Batch make_batch(DType dtype, int64_t rows, int index) {
  Tensor ids(DType::kInt64, {rows, 2});
  for (int64_t i = 0; i < ids.num_elements(); ++i)
    ids.data<int64_t>()[i] = (3 * index + i * i) % 11;
  return {{"x", numbers(dtype, {rows, 3}, 10.0 + index)},
          {"ids", ids},
          {"y", numbers(dtype, {rows, 2}, 20.0 + index)}};
}

}  // namespace cohort
