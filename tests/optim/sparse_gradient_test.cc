#include <cmath>

#include <gmock/gmock.h>

#include "core/base/random.h"
#include "core/graph/op.h"
#include "core/ops/array_ops.h"
#include "strategies/central_storage_strategy.h"
#include "tests/optim/replicas.h"

// Gradients of embedding tables: rows that steps have looked up.
namespace cohort::optim {
namespace {

using testing::make_weight;
using testing::to_vector;
using testing::VariablePtr;

constexpr int64_t kRows = 11, kColumns = 3;

struct Case {
  std::string name;
  std::function<Optimizer()> make;
};

std::vector<Case> row_wise_cases() {
  return {{"SGD", [] { return SGD(0.3); }},
          {"SGD by value", [] { return SGD(0.3, {.gradients = {.clipvalue = 0.2}}); }},
          {"SGD by norm", [] { return SGD(0.3, {.gradients = {.clipnorm = 0.5}}); }},
          {"SGD by global norm", [] { return SGD(0.3, {.gradients = {.global_clipnorm = 0.5}}); }},
          {"Adagrad", [] { return Adagrad(0.3); }}};
}

std::vector<Case> dense_cases() {
  return {{"momentum", [] { return SGD(0.3, {.momentum = 0.9}); }},
          {"decay", [] { return SGD(0.3, {.weight_decay = {.factor = 0.1}}); }},
          {"accumulation", [] { return Adagrad(0.3, {.gradients = {.accumulation_steps = 2}}); }},
          {"Adam", [] { return Adam(0.3); }},
          {"RMSprop", [] { return RMSprop(0.3); }}};
}

std::vector<Case> all_cases() {
  auto cases = row_wise_cases();
  for (const Case& c : dense_cases()) cases.push_back(c);
  cases.push_back({"lazy Adam", [] { return Adam(0.3, {.lazy = true}); }});
  return cases;
}

VariablePtr make_table() {
  Tensor value(DType::kFloat64, {kRows, kColumns});
  for (int64_t i = 0; i < value.num_elements(); ++i)
    value.data<double>()[i] = std::sin(static_cast<double>(7 * i));
  return make_weight("table", value);
}

enum class Form { kSparse, kDense };

// Every lookup contributes its row's squared sum to the loss.
Function lookup_step(const Optimizer& optimizer, const VariablePtr& table,
                     Form form = Form::kSparse) {
  return Function([=](const std::vector<Value>& in) {
    const Value whole = table->read();
    const Value rows = ops::gather(form == Form::kSparse ? whole : ops::identity(whole), in[0]);
    optimizer.minimize(ops::reduce_sum(ops::square(ops::reduce_sum(rows, {1}))), {table});
    return std::vector<Value>{};
  });
}

Tensor lookups(std::vector<int32_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  return Tensor::from<int32_t>(std::move(rows), {count});
}

// Of a few rows again and again.
Tensor random_lookups(int64_t count, uint64_t seed) {
  RandomStream random(seed);
  std::vector<int32_t> rows;
  for (int64_t i = 0; i < count; ++i) rows.push_back(static_cast<int32_t>(random.below(kRows / 2)));
  return lookups(std::move(rows));
}

TEST(SparseGradientTest, EqualsTheDenseOne) {
  for (const Case& c : row_wise_cases()) {
    const auto sparse = make_table(), dense = make_table();
    const Function by_rows = lookup_step(c.make(), sparse),
                   whole = lookup_step(c.make(), dense, Form::kDense);
    for (uint64_t step = 0; step < 4; ++step) {
      by_rows({random_lookups(6, step)});
      whole({random_lookups(6, step)});
    }
    SCOPED_TRACE(c.name);
    testing::expect_near(sparse->value(), to_vector(dense->value()));
  }
}

TEST(SparseGradientTest, MayComeFromSeveralLookupsOfAnyIndexType) {
  const auto table = make_weight("table", Tensor::full(DType::kFloat64, {4, 1}, 1));
  const Optimizer adagrad = Adagrad(1, {.initial_accumulator_value = 0, .epsilon = 0});
  const Function step([&](const std::vector<Value>& in) {
    const Value whole = table->read();
    adagrad.minimize(
        ops::reduce_sum(ops::gather(whole, in[0])) + ops::reduce_sum(ops::gather(whole, in[1])),
        {table});
    return std::vector<Value>{};
  });
  step({Tensor::from<uint8_t>({2, 2}, {2}), Tensor::from<int64_t>({0, 2}, {2})});
  testing::expect_near(table->value(), {0, 1, 0, 1});
}

// The values in the graph of a step that are as large as the table, other than its reads.
std::vector<std::string> table_sized(const Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes())
    for (const TensorSpec& spec : node->outputs())
      if (spec.shape == Shape{kRows, kColumns} && node->op().name != "ReadVariable")
        names.push_back(node->name());
  return names;
}

class SparseReplicasTest : public testing::MirroredTest {};
INSTANTIATE_TEST_SUITE_P(Replicas, SparseReplicasTest, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(SparseReplicasTest, TouchesItsRowsOnly) {
  MirroredStrategy strategy(first_cpus(GetParam()));
  const auto scope = strategy.scope();
  auto cases = row_wise_cases();
  cases.push_back({"lazy Adam", [] { return Adam(0.3, {.amsgrad = true, .lazy = true}); }});
  for (const Case& c : cases) {
    const auto table = make_table();
    const Function step = lookup_step(c.make(), table);
    EXPECT_THAT(table_sized(*testing::trace_in(strategy, step, {{DType::kInt32, {5}}}).graph),
                ::testing::IsEmpty())
        << c.name;
  }
  const auto table = make_table();
  const Function step = lookup_step(Adam(), table);
  EXPECT_THAT(table_sized(*testing::trace_in(strategy, step, {{DType::kInt32, {5}}}).graph),
              ::testing::Not(::testing::IsEmpty()));
}

// The table on every replica after a few steps with lookups of 2, 5, 8, ... rows.
std::vector<std::vector<double>> trained(const Optimizer& optimizer, Strategy& strategy) {
  const auto scope = strategy.scope();
  const auto table = make_table();
  const Function step = lookup_step(optimizer, table);
  for (uint64_t i = 0; i < 4; ++i)
    strategy.run(step, strategy.split_batch({random_lookups(static_cast<int64_t>(3 * i + 2), i)}));
  std::vector<std::vector<double>> copies;
  for (size_t r = 0; r < strategy.devices().size(); ++r)
    copies.push_back(to_vector(table->storage(static_cast<int>(r))));
  return copies;
}

TEST_P(SparseReplicasTest, TrainsLikeOneDevice) {
  const auto devices = first_cpus(GetParam()).devices;
  MirroredStrategy mirrored({.devices = devices});
  CentralStorageStrategy central({.compute_devices = devices});
  for (const Case& c : all_cases()) {
    const auto expected = trained(c.make(), default_strategy())[0];
    for (Strategy* strategy : std::initializer_list<Strategy*>{&mirrored, &central}) {
      SCOPED_TRACE(str(c.name, " under ", strategy->name()));
      const auto copies = trained(c.make(), *strategy);
      testing::expect_near(Tensor::from(copies[0], {kRows * kColumns}), expected);
      for (const auto& copy : copies) EXPECT_EQ(copy, copies[0]);
    }
  }
}

TEST(LazyAdamTest, LeavesOtherRowsAndTheirSlotsAlone) {
  for (const bool lazy : {false, true}) {
    const auto table = make_weight("table", Tensor::full(DType::kFloat64, {3, 1}, 1));
    const Optimizer adam = Adam(0.1, {.lazy = lazy});
    const Function step = lookup_step(adam, table);
    step({lookups({1})});
    const double once = to_vector(table->value())[1];
    step({lookups({2, 2})});
    const auto values = to_vector(table->value());
    EXPECT_EQ(values[0], 1);
    EXPECT_EQ(values[1] == once, lazy);
    EXPECT_NE(values[2], 1);
  }
}

}  // namespace
}  // namespace cohort::optim
