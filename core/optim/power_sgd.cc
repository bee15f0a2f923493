#include "core/optim/power_sgd.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/random.h"
#include "core/distribute/strategy.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/random_ops.h"

namespace cohort::optim {
namespace {

struct MatrixSize {
  int64_t rows, columns;
};
MatrixSize matrix_size(const Shape& shape) {
  const int64_t columns = shape.dim(-1);
  return {columns == 0 ? 0 : shape.num_elements() / columns, columns};
}

// In which matrices of these numbers are multiplied.
DType working_dtype(DType dtype) {
  return dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

Value as_matrix(const Value& x) {
  return ops::cast(ops::reshape(x, {-1, x.shape().dim(-1)}), working_dtype(x.dtype()));
}
Value shaped_like(const Value& matrix, const Value& x) {
  return ops::cast(ops::reshape(matrix, x.shape().to_vector()), x.dtype());
}

// x / by, or x where that is 0.
Value over(const Value& x, const Value& by) {
  const auto number = [&](double value) { return ops::constant(value, by.dtype()); };
  return x / ops::where(ops::equal(by, number(0)), number(1), by);
}

// x with length 1, however small or large it is; zeros stay zeros.
Value unit(const Value& x) {
  const Value scaled = over(x, ops::reduce_max(ops::abs(x)));
  return over(scaled, ops::sqrt(ops::reduce_sum(ops::square(scaled))));
}

// An orthonormal basis of the columns of x (Gram and Schmidt, each column twice: what the first
// pass leaves of a column that depends on the others is rounding, and at an angle to them).
Value orthonormal(const Value& x) {
  Value basis;
  for (int64_t i = 0; i < x.shape()[1]; ++i) {
    Value column = unit(ops::slice(x, {0, i}, {-1, 1}));
    for (int pass = 0; basis.defined() && pass < 2; ++pass)
      column = unit(column - ops::matmul(basis, ops::matmul(basis, column, {.transpose_a = true})));
    basis = basis.defined() ? ops::concat({basis, column}, 1) : column;
  }
  return basis;
}

Value both(const Value& a, const Value& b) {
  if (!a.defined()) return b;
  return b.defined() ? ops::logical_and(a, b) : a;
}

// New state that counts if `when`, which may be none, says so.
void keep(Variable& state, const Value& value, const Value& when) {
  state.assign(when.defined() ? ops::where(when, value, state.read()) : value);
}

std::vector<Value> sums(const std::vector<Value>& values, const Value& when) {
  std::vector<Gradient> gradients;
  for (const Value& value : values) gradients.push_back({.values = value});
  std::vector<Value> result;
  for (const Gradient& sum : current_strategy().reduce_gradients(gradients, when))
    result.push_back(sum.values);
  return result;
}

// One gradient on its way through the compression.
struct Matrix {
  Value gradient;  // of this replica
  PowerSgdState state;
  Value input;  // a matrix: the gradient and what is left of those before
  Value directions;
};

// Directions of one step alone: those of replica 0.
std::vector<Value> random_directions(const std::vector<Matrix>& matrices,
                                     const PowerSgdOptions& options, const Value& when) {
  const Value is_first = ops::equal(ops::replica_id(), ops::constant(0, DType::kInt64));
  std::vector<Value> drawn;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Value& input = matrices[i].input;
    const auto seed = static_cast<int64_t>(mix(options.seed, i) >> 1);
    const Value normal = ops::random_normal({input.shape()[1], options.rank}, 0, 1, input.dtype(),
                                            std::max<int64_t>(seed, 1));
    drawn.push_back(ops::where(is_first, normal, ops::constant(0, normal.dtype())));
  }
  return sums(drawn, when);
}

void find_directions(std::vector<Matrix>& matrices, const PowerSgdOptions& options,
                     const Value& when) {
  std::vector<Value> drawn;
  if (!options.warm_start) drawn = random_directions(matrices, options, when);
  for (size_t i = 0; i < matrices.size(); ++i)
    matrices[i].directions =
        orthonormal(options.warm_start ? matrices[i].state.directions->read() : drawn[i]);
}

// The sums over all replicas, of rank `options.rank`.
std::vector<Value> compressed_sums(std::vector<Matrix>& matrices, const PowerSgdOptions& options,
                                   const Value& when) {
  for (Matrix& m : matrices) {
    m.input = as_matrix(m.gradient);
    if (m.state.residual) m.input = m.input + as_matrix(m.state.residual->read());
  }
  find_directions(matrices, options, when);
  std::vector<Value> left, right, result;
  for (const Matrix& m : matrices) left.push_back(ops::matmul(m.input, m.directions));
  left = sums(left, when);
  for (size_t i = 0; i < matrices.size(); ++i) {
    left[i] = orthonormal(left[i]);
    right.push_back(ops::matmul(matrices[i].input, left[i], {.transpose_a = true}));
  }
  right = sums(right, when);
  const double replicas = current_strategy().num_replicas_in_sync();
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix& m = matrices[i];
    const Value sum = ops::matmul(left[i], right[i], {.transpose_b = true});
    if (m.state.residual)
      keep(*m.state.residual, shaped_like(m.input - sum * (1 / replicas), m.gradient), when);
    if (m.state.directions) {
      // A direction along which there was nothing stays what it was: 0 would be none for ever.
      const Value length = ops::reduce_max(ops::abs(right[i]), {0}, true);
      const Value is_none = ops::equal(length, ops::constant(0, length.dtype()));
      keep(*m.state.directions, ops::where(is_none, m.directions, right[i]), when);
    }
    result.push_back(shaped_like(sum, m.gradient));
  }
  return result;
}

}  // namespace

void check_power_sgd(const PowerSgdOptions& options) {
  const auto check = [](std::string_view name, double value, double least) {
    if (!(value >= least))
      invalid("PowerSGD: ", name, " must be at least ", least, ", got ", value);
  };
  check("rank", static_cast<double>(options.rank), 1);
  check("min_compression", options.min_compression, 1);
  const bool remembers = options.error_feedback || options.warm_start;
  check(remembers ? "start_iteration with error_feedback or warm_start" : "start_iteration",
        static_cast<double>(options.start_iteration), remembers ? 2 : 0);
}

bool is_low_rank(const Shape& variable, const PowerSgdOptions& options) {
  if (variable.rank() < 2) return false;
  const auto [rows, columns] = matrix_size(variable);
  const auto r = static_cast<double>(rows), c = static_cast<double>(columns);
  return (r + c) * static_cast<double>(options.rank) * options.min_compression < r * c;
}

Tensor initial_directions(const Variable& variable, const PowerSgdOptions& options) {
  uint64_t stream = 0;
  for (const unsigned char c : variable.name()) stream = mix(stream, c);
  RandomStream random(options.seed, stream);
  Tensor made(DType::kFloat64, {matrix_size(variable.spec().shape).columns, options.rank});
  for (int64_t i = 0; i < made.num_elements(); ++i)
    made.data<double>()[i] = 2 * random.uniform() - 1;
  return made.cast(working_dtype(variable.spec().dtype));
}

std::vector<Gradient> reduce_low_rank(const std::vector<Gradient>& gradients,
                                      const std::vector<PowerSgdState>& states,
                                      const PowerSgdOptions& options, const Value& update,
                                      const Value& when) {
  std::vector<Gradient> others = gradients, early(gradients.size());
  std::vector<Matrix> matrices;
  std::vector<size_t> places;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i] || gradients[i].sparse() ||
        !is_low_rank(gradients[i].values.shape(), options))
      continue;
    places.push_back(i);
    matrices.push_back({.gradient = gradients[i].values, .state = states[i]});
    early[i] = std::exchange(others[i], Gradient());
  }
  Strategy& strategy = current_strategy();
  std::vector<Gradient> reduced = strategy.reduce_gradients(others, when);
  if (matrices.empty()) return reduced;
  Value starts;  // none: it is time always
  if (options.start_iteration > 0) {
    const auto start = static_cast<double>(options.start_iteration);
    starts = ops::greater_equal(update, ops::constant(start, DType::kFloat64));
    early = strategy.reduce_gradients(early, both(when, ops::logical_not(starts)));
  }
  const std::vector<Value> late = compressed_sums(matrices, options, both(when, starts));
  for (size_t k = 0; k < places.size(); ++k) {
    const size_t i = places[k];
    reduced[i] = {.values =
                      starts.defined() ? ops::where(starts, late[k], early[i].values) : late[k]};
  }
  return reduced;
}

}  // namespace cohort::optim
