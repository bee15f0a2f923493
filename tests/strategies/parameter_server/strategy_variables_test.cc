// Variables on parameter servers: how they are cut, placed, named, read and written.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/runtime/function.h"
#include "tests/strategies/parameter_server/job.h"

namespace cohort::testing {
namespace {

TEST(ServerVariable, IsCutIntoShardsAndReadAsOne) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(4)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {10});
  const auto shards = on_servers(v).shards();
  std::vector<std::vector<float>> values;
  std::vector<int> servers;
  std::vector<std::string> names;
  for (const auto& shard : shards) {
    values.push_back(values_of(shard.value));
    servers.push_back(shard.server);
    names.push_back(shard.name);
  }
  EXPECT_EQ(values, (std::vector<std::vector<float>>{{0, 1, 2}, {3, 4, 5}, {6, 7}, {8, 9}}));
  EXPECT_EQ(servers, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(names, (std::vector<std::string>{"v/part_0", "v/part_1", "v/part_2", "v/part_3"}));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(ServerVariable, ThatIsLostIsNotTheOneThatAnotherWorkerHasMadeAnew) {
  const Job job(1, 2);
  const auto made_by = [](ParameterServerStrategy& strategy) {
    const auto scope = strategy.scope();
    return counting("v", {2});
  };
  const auto first = job.worker(0), second = job.worker(1);
  const VariablePtr before = made_by(*first), same = made_by(*second);
  before->assign(floats({5, 6}));
  EXPECT_EQ(values_of(same->value()), (std::vector<float>{5, 6}));
  job.server(0).stop();
  job.server(0).start();
  const auto again = job.worker(0);
  EXPECT_EQ(values_of(made_by(*again)->value()), (std::vector<float>{0, 1}));
  EXPECT_ERROR(same->value(), Code::kNotFound, "parameter server ps:0");
  EXPECT_ERROR(same->assign_add(floats({1, 1})), Code::kNotFound, "made anew");
  const auto later = job.worker(1);
  EXPECT_EQ(values_of(made_by(*later)->value()), (std::vector<float>{0, 1}));
}

TEST(ServerVariable, HasNoConstraint) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  EXPECT_ERROR(create_variable({.name = "v",
                                .spec = {DType::kFloat32, {}},
                                .initial_value = [] { return Tensor::scalar(0.0F); },
                                .constraint = [](const Value& v) { return v; }}),
               Code::kUnimplemented, "variable \"v\" has a constraint");
}

TEST(ServerVariable, WithoutAnInitialValueIsRefusedWhenItIsMade) {
  const auto make = [] { return create_variable({.name = "v", .spec = kFour}); };
  const auto refused_under = [&](const Options& options) {
    const Job job(1, 1, options);
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    EXPECT_ERROR(make(), Code::kInvalidArgument, "variable \"v\" has no initial value");
  };
  refused_under({});
  refused_under({.initial_rows = [](const std::string&, const TensorSpec&) { return nullptr; }});
  const Job job(1, 1, {.rows_on_first_use = [](const std::string&, const TensorSpec&) {
                  return std::optional(RowInitializer{});
                }});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  EXPECT_TRUE(on_servers(make()).is_lazy());
}

TEST(ServerVariable, IsAssignedAddedToAndScatteredAcrossItsShards) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(3)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4, 2});
  v->assign(Tensor::from<float>({4, 4, 5, 5, 6, 6, 7, 7}, {4, 2}));
  v->assign_add(Tensor::full(DType::kFloat32, {4, 2}, 2));
  v->assign_sub(Tensor::full(DType::kFloat32, {4, 2}, 1));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{5, 5, 6, 6, 7, 7, 8, 8}));
  const Tensor rows = Tensor::from<int64_t>({3, 0}, {2}),
               twos = Tensor::full(DType::kFloat32, {2, 2}, 2);
  v->scatter(ScatterOp::kAdd, rows, twos);
  v->scatter(ScatterOp::kMul, rows, twos);
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{14, 14, 6, 6, 7, 7, 20, 20}));
  EXPECT_ERROR(v->assign(Tensor::zeros(DType::kFloat32, {4})), Code::kInvalidArgument, "\"v\"");
}

TEST(ServerVariable, OfANameThatAnotherHasIsOneOfItsOwn) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  std::vector<VariablePtr> variables;
  for (const char* name : {"w", "w", "w#2", "v#2", "v", "v"})
    variables.push_back(counting(name, {1}));
  float number = 0;
  for (const VariablePtr& variable : variables) variable->assign(floats({++number}));
  number = 0;
  for (const VariablePtr& variable : variables)
    EXPECT_EQ(values_of(variable->value()), (std::vector<float>{++number})) << variable->name();
}

TEST(ServerVariable, OfANameThatAnotherGetsWithAnOptimizerIsOneOfItsOwn) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto moved = counting("w", {1});
  std::vector<VariablePtr> others;
  for (const char* name : {"w@1", "w@1", "w@1#1", "w@", "@1"})
    others.push_back(counting(name, {1}));
  moved->assign(floats({9}));
  float number = 0;
  for (const VariablePtr& other : others) other->assign(floats({++number}));
  on_servers(moved).move_by(optim::SGD(1).rule(), 0, {});
  EXPECT_EQ(values_of(moved->value()), (std::vector<float>{9}));
  number = 0;
  for (const VariablePtr& other : others)
    EXPECT_EQ(values_of(other->value()), (std::vector<float>{++number})) << other->name();
}

TEST(ServerVariable, AScatterOfOtherRowsChangesNothing) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(3)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4, 2}), scalar = counting("scalar", {});
  const Tensor ones = Tensor::full(DType::kFloat32, {2, 2}, 1);
  for (const ScatterOp op : {ScatterOp::kAdd, ScatterOp::kSub}) {
    for (const int64_t row : {-1, 4})
      EXPECT_ERROR(v->scatter(op, Tensor::from<int64_t>({0, row}, {2}), ones), Code::kOutOfRange,
                   str("row ", row, " of variable \"v\" float32[4,2] (allowed: 0 to 3)"));
    const Tensor rows = Tensor::from<int64_t>({0, 1}, {2});
    for (const Tensor& indices : {rows.cast(DType::kFloat32), rows.reshape({2, 1})})
      EXPECT_ERROR(v->scatter(op, indices, ones), Code::kInvalidArgument, "float32[4,2]");
    for (const Shape& shape : {Shape{1, 2}, Shape{2, 1}, Shape{}})
      EXPECT_ERROR(v->scatter(op, rows, Tensor::full(DType::kFloat32, shape, 1)),
                   Code::kInvalidArgument, "float32[4,2]");
    EXPECT_ERROR(scalar->scatter(op, rows, ones), Code::kInvalidArgument, "no rows");
  }
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(ServerVariable, ScalarsAndIntegersHaveOneShardAndCount) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto counter =
      create_variable({.name = "n", .spec = {DType::kInt64, {}}, .initial_value = [] {
                         return Tensor::scalar(int64_t{1} << 60);
                       }});
  EXPECT_EQ(on_servers(counter).info().num_shards(), 1u);
  for (int i = 0; i < 3; ++i) counter->assign_add(Tensor::scalar(int64_t{2}));
  EXPECT_EQ(counter->value().data<int64_t>()[0], (int64_t{1} << 60) + 6);
}

// A sum of integers has no product with a delay, and one of floating-point numbers would be wrong.
TEST(ServerVariable, SumsExactlyAlsoWhereDelaysAreCompensated) {
  for (const DType dtype : {DType::kInt64, DType::kFloat32}) {
    const Job job(1, 2, {.delay_compensation = 1});
    const auto first = job.worker(0), second = job.worker(1);
    const auto make = [&](ParameterServerStrategy& strategy) {
      const auto scope = strategy.scope();
      return create_variable({.name = "sum", .spec = {dtype, {2}}, .initial_value = [=] {
                                return Tensor::zeros(dtype, {2});
                              }});
    };
    const VariablePtr of_first = make(*first), of_second = make(*second);
    for (const VariablePtr& variable : {of_first, of_second}) variable->value();
    of_first->assign_add(Tensor::full(dtype, {2}, 1));
    of_second->assign_add(Tensor::full(dtype, {2}, 2));
    expect_near(of_first->value(), Tensor::full(dtype, {2}, 3), 0);
  }
}

TEST(ServerVariable, IsPlacedBySizeAndByWhatAStepMoves) {
  const auto places = [](const Options& options) {
    const Job job(2, 1, options);
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    std::vector<int> servers;
    for (const auto& v :
         {counting("table", {1000, 4}), counting("a", {1000}), counting("b", {1000})})
      servers.push_back(on_servers(v).first_server());
    return servers;
  };
  const auto load = [](const std::string& name, const TensorSpec& spec) {
    const auto bytes = static_cast<int64_t>(spec.bytes());
    return ShardLoad{.bytes = bytes, .traffic = name == "table" ? 64 : bytes};
  };
  EXPECT_EQ(places({}), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(places({.load = load}), (std::vector<int>{0, 1, 0}));
}

TEST(ServerVariable, OfNoPlaceOrTooManyShardsIsNamed) {
  const auto make = [](const Options& options) {
    const Job job(1, 1, options);
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    counting("v", {int64_t{1} << 40});
  };
  EXPECT_ERROR(make({.partitioner = FixedShardsPartitioner(2),
                     .load = [](auto&, auto&) { return ShardLoad{.bytes = -1}; }}),
               Code::kInvalidArgument, "variable \"v\" -1 bytes and 0 of traffic");
  EXPECT_ERROR(make({.partitioner = [](auto&, int) { return std::vector<int64_t>{0}; }}),
               Code::kInvalidArgument, "variable \"v\": the partitioner returned [0]");
  EXPECT_ERROR(make({.partitioner = MaxSizePartitioner(1)}), Code::kInvalidArgument,
               "variable \"v\": the partitioner cuts a variable float32[1099511627776] into "
               "1099511627776 shards, and 1048576 are allowed");
}

TEST(ServerVariable, GoRoundTheServersWhereAllAreAlike) {
  for (const int num_servers : {1, 2, 3}) {
    const Job job(num_servers, 1);
    const auto strategy = job.worker(0);
    const auto scope = strategy->scope();
    for (int i = 0; i < 7; ++i)
      EXPECT_EQ(on_servers(counting(str("v", i), {10})).first_server(), i % num_servers)
          << "variable " << i << " on " << num_servers << " servers";
  }
}

TEST(ServerVariable, SameNamesAreDifferentVariables) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto a = counting("v", {2}), b = counting("v", {3});
  a->assign(floats({5, 5}));
  EXPECT_EQ(values_of(b->value()), (std::vector<float>{0, 1, 2}));
}

TEST(ServerVariable, MayBeginWithTheValueOfAnother) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(2)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4});
  const auto w = create_variable(
      {.name = "w", .spec = v->spec(), .initial_value = [v] { return v->value(); }});
  EXPECT_EQ(values_of(w->value()), (std::vector<float>{0, 1, 2, 3}));
}

TEST(ServerVariable, IsReadOnTheServersByWhatNoStrategyRuns) {
  const Job job(2, 2, {.partitioner = FixedShardsPartitioner(2)});
  const auto strategy = job.worker(0), other = job.worker(1);
  const auto made_by = [](ParameterServerStrategy& strategy) {
    const auto scope = strategy.scope();
    return counting("v", {4});
  };
  const VariablePtr v = made_by(*strategy), same = made_by(*other);
  const Function doubled = function([&] { return v->read() * 2.0; });
  Plan plan(doubled.trace({}), {.precision = Precision::kFloat32, .threads = 1});
  const auto read = [&] { return values_of(doubled(std::vector<Tensor>())[0]); };
  const auto run = [&] { return values_of(plan.run({}, StepInfo{})[0]); };
  EXPECT_EQ(read(), (std::vector<float>{0, 2, 4, 6}));
  EXPECT_EQ(run(), (std::vector<float>{0, 2, 4, 6}));
  v->assign(floats({1, 1, 2, 2}));
  EXPECT_EQ(read(), (std::vector<float>{2, 2, 4, 4}));
  same->assign_add(floats({1, 1, 1, 1}));
  EXPECT_EQ(run(), (std::vector<float>{4, 4, 6, 6}));
  const uint64_t sent = job.sum(&ServerStatistics::sent_bytes);
  EXPECT_EQ(run(), (std::vector<float>{4, 4, 6, 6}));
  EXPECT_EQ(job.sum(&ServerStatistics::sent_bytes), sent) << "nothing has changed";
}

TEST(ServerVariable, IsWrittenOnTheServersByWhatNoStrategyRuns) {
  const Job job(2, 1, {.partitioner = FixedShardsPartitioner(2)});
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  const auto v = counting("v", {4});
  const Function add = function([&](Value x) { return v->assign_add(x); });
  const Tensor ones = floats({1, 1, 1, 1});
  EXPECT_EQ(values_of(add({ones})[0]), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{1, 2, 3, 4}));
  const auto last = [&](Value x) {
    v->scatter(ScatterOp::kUpdate, ops::constant(Tensor::from<int64_t>({3}, {1})), x);
    return v->read();
  };
  EXPECT_EQ(values_of(function(last)({floats({9})})[0]), (std::vector<float>{1, 2, 3, 9}));
  EXPECT_EQ(values_of(v->value()), (std::vector<float>{1, 2, 3, 9}));
  const Function half = function([&](Value row) {
    v->assign(v->read() * 0.0);
    return ops::gather(v->read(), row);
  });
  EXPECT_ERROR(half({Tensor::from<int64_t>({7}, {1})}), Code::kOutOfRange, "index 7 at position 0");
  EXPECT_EQ(values_of(function([&] { return v->read() * 1.0; })(std::vector<Tensor>())[0]),
            (std::vector<float>{1, 2, 3, 9}))
      << "what a function with an error has written is nowhere";
}

TEST(ServerVariable, OfAModelIsPredictedWithByAPlan) {
  const Job job(2, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  auto model = nn::Sequential({nn::Embedding(9, 2), nn::Flatten(), nn::Dense(1)});
  model.compile({.optimizer = optim::SGD(0.5), .loss = losses::MeanSquaredError()});
  const Tensor x = Tensor::from<int32_t>({1, 2, 3, 4}, {4, 1}),
               y = Tensor::from<float>({1, 2, 3, 4}, {4, 1});
  model.fit(x, y, {.verbose = Verbose::kSilent});
  const Function predict = function([&](Value v) { return model(v); });
  Plan plan(predict.trace({x.spec()}), {.precision = Precision::kFloat32});
  for (int epoch = 0; epoch < 2; ++epoch) {
    const auto found = plan.run(std::vector{x}, StepInfo{})[0];
    EXPECT_EQ(values_of(found), values_of(model.predict(x)));
    model.fit(x, y, {.verbose = Verbose::kSilent});
  }
}

TEST(ServerVariable, OfBoolIsNotAddedTo) {
  const Job job(1, 1);
  const auto strategy = job.worker(0);
  const auto scope = strategy->scope();
  Tensor two = Tensor::zeros(DType::kBool, {2});
  const auto v =
      create_variable({.name = "v", .spec = two.spec(), .initial_value = [&] { return two; }});
  const char* what = "variable \"v\" is bool[2]: nothing can be added to it";
  EXPECT_ERROR(v->assign_add(two), Code::kUnimplemented, what);
  EXPECT_ERROR(v->assign_sub(two), Code::kUnimplemented, what);
}

}  // namespace
}  // namespace cohort::testing
