// Functions over variables that live on servers, in processes that attach to them.
#include "strategies/parameter_server/server_function.h"

#include <atomic>
#include <cmath>
#include <thread>

#include "core/graph/serialization.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/runtime/function.h"
#include "strategies/parameter_server/push_op.h"
#include "strategies/parameter_server/server_variable.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/gate.h"

namespace cohort::testing {
namespace {

using ServerVariablePtr = std::shared_ptr<ServerVariable>;

// Two servers, and a session for each worker.
class ServerFunctionTest : public ::testing::Test {
 protected:
  std::shared_ptr<ServerSession> session(const std::string& task) const {
    return std::make_shared<ServerSession>(
        std::vector{servers_[0].address(), servers_[1].address()},
        ParameterClientOptions{.task = task, .job_id = "job"}, ConsistencyOptions{},
        no_environment);
  }
  // Rows 0, 1, 2, ... of `columns` numbers.
  static ServerVariablePtr counting_rows(std::shared_ptr<ServerSession> session, int64_t rows,
                                         std::vector<int> servers, const std::string& name = "v") {
    return std::make_shared<ServerVariable>(
        ServerVariable::Options{.variable = {.name = name,
                                             .spec = {DType::kFloat32, {rows, 2}},
                                             .initial_value =
                                                 [rows] {
                                                   Tensor t(DType::kFloat32, {rows, 2});
                                                   for (int64_t i = 0; i < 2 * rows; ++i)
                                                     t.data<float>()[i] = static_cast<float>(i / 2);
                                                   return t;
                                                 }},
                                .servers = std::move(servers)},
        std::move(session));
  }
  uint64_t bytes_sent() const {
    return servers_[0]->statistics().sent_bytes + servers_[1]->statistics().sent_bytes;
  }

  mutable TestServer servers_[2];
};

// What Strategy::run does with a step, for one replica.
struct Traced {
  explicit Traced(const Function::Body& body, const Signature& signature)
      : function(body), graph(&function.trace(signature)) {}
  Function function;
  const GraphFunction* graph;
};

TEST_F(ServerFunctionTest, AVariableAttachedByValueIsTheSame) {
  const auto made = counting_rows(session("worker:0"), 5, {1, 0});
  const ServerVariableInfo info = ServerVariableInfo::unpack(made->info().pack(), 2);
  EXPECT_EQ(info, made->info());
  ServerVariable attached(info, session("worker:1"));
  EXPECT_EQ(values_of(attached.value()), (std::vector<float>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  attached.assign(Tensor::full(DType::kFloat32, {5, 2}, 7));
  EXPECT_EQ(values_of(made->value())[9], 7);
}

TEST_F(ServerFunctionTest, RefusesADescriptionThatIsNone) {
  const std::string good = counting_rows(session("worker:0"), 5, {1, 0})->info().pack();
  EXPECT_ERROR(ServerVariableInfo::unpack(good, 1), Code::kDataLoss, "0 to 0");
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_EQ(error_of([&] { ServerVariableInfo::unpack(good.substr(0, length), 2); }).code(),
              Code::kDataLoss)
        << "cut off after " << length << " of " << good.size() << " bytes";
}

TEST_F(ServerFunctionTest, ASerialisedFunctionRunsInAnotherProcess) {
  const auto here = session("worker:0"), there = session("worker:1");
  const auto variable = counting_rows(here, 5, {0, 1});
  const std::string described = variable->info().pack();
  Traced step(
      [&](const std::vector<Value>& inputs) {
        variable->assign_add(inputs[0]);
        return std::vector<Value>{ops::reduce_sum(variable->read())};
      },
      {{DType::kFloat32, {5, 2}}});
  const std::string bytes = serialize_function(*step.graph);

  const auto attached =
      std::make_shared<ServerVariable>(ServerVariableInfo::unpack(described, 2), there);
  const GraphFunction imported = import_function(
      bytes, [&](const std::string& name) { return name == "v" ? attached : nullptr; });
  ServerFunction function({&imported}, there);
  const Tensor ones = Tensor::full(DType::kFloat32, {5, 2}, 1);
  EXPECT_EQ(function.run({ones})[0].item(), 30) << "the function sees what it has written";
  EXPECT_EQ(function.run({ones})[0].item(), 40);
  EXPECT_EQ(values_of(variable->value())[0], 2);
}

TEST_F(ServerFunctionTest, AddingIsAtomicOverAllProcesses) {
  constexpr int kCalls = 40;
  const auto counter = counting_rows(session("worker:0"), 1, {0});
  counter->info();
  std::vector<std::thread> threads;
  for (int worker = 1; worker <= 3; ++worker)
    threads.emplace_back([&, worker] {
      const auto own = session(str("worker:", worker));
      const auto attached = std::make_shared<ServerVariable>(counter->info(), own);
      Traced step(
          [&](const std::vector<Value>& inputs) {
            attached->assign_add(inputs[0]);
            attached->assign_sub(inputs[0] * 0.5);
            return std::vector<Value>{};
          },
          {{DType::kFloat32, {1, 2}}});
      ServerFunction function({step.graph}, own);
      for (int i = 0; i < kCalls; ++i) function.run({Tensor::full(DType::kFloat32, {1, 2}, 2)});
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(values_of(counter->value())[0], 3 * kCalls);
}

TEST_F(ServerFunctionTest, ASumWithAValueOfBeforeAnotherWriteUndoesThatWrite) {
  const auto own = session("worker:0");
  const auto variable = counting_rows(own, 1, {0});
  const TensorSpec spec{DType::kFloat32, {1, 2}};
  Traced step(
      [&](const std::vector<Value>& inputs) {
        const Value before = variable->read();
        variable->assign(before + inputs[0]);
        variable->assign(before + inputs[1]);
        return std::vector<Value>{};
      },
      {spec, spec});
  ServerFunction function({step.graph}, own);
  function.run(
      {Tensor::full(DType::kFloat32, {1, 2}, 1), Tensor::full(DType::kFloat32, {1, 2}, 2)});
  EXPECT_EQ(values_of(variable->value()), (std::vector<float>{2, 2}));
}

TEST_F(ServerFunctionTest, OnlyWhatHasChangedIsPulled) {
  const auto own = session("worker:0");
  const auto variable = counting_rows(own, 1000, {0, 1}), other = counting_rows(own, 1, {0}, "w");
  Traced step(
      [&](const std::vector<Value>&) {
        return std::vector<Value>{ops::reduce_sum(variable->read()),
                                  ops::reduce_sum(other->read())};
      },
      {});
  ServerFunction function({step.graph}, own);
  const uint64_t before = bytes_sent();
  function.run({});
  EXPECT_EQ(bytes_sent() - before, 8008);
  function.run({});
  EXPECT_EQ(bytes_sent() - before, 8008) << "nothing has changed";
  other->assign(Tensor::full(DType::kFloat32, {1, 2}, 3));
  EXPECT_EQ(function.run({})[1].item(), 6);
  EXPECT_EQ(bytes_sent() - before, 8016);
}

TEST_F(ServerFunctionTest, ALookupPullsItsRowsAlone) {
  const auto own = session("worker:0");
  const auto table = counting_rows(own, 100'000, {0, 1, 0, 1});
  Traced step(
      [&](const std::vector<Value>& inputs) {
        const Value twice = ops::gather(table->read(), ops::reshape(inputs[0], {2, 2}));
        return std::vector<Value>{twice, ops::gather_rows_or_zero(table->read(), inputs[0])};
      },
      {{DType::kInt32, {4}}});
  ServerFunction function({step.graph}, own);
  const uint64_t before = bytes_sent();
  const auto results = function.run({Tensor::from<int32_t>({99'999, 7, 7, 30'000}, {4})});
  EXPECT_EQ(values_of(results[0]),
            (std::vector<float>{99'999, 99'999, 7, 7, 7, 7, 30'000, 30'000}));
  EXPECT_EQ(values_of(results[1]), values_of(results[0]));
  EXPECT_EQ(bytes_sent() - before, 3u * 8) << "each row once";
  EXPECT_ERROR(function.run({Tensor::from<int32_t>({0, 100'000, 0, 0}, {4})}), Code::kOutOfRange,
               "100000");
  EXPECT_ERROR(function.run({Tensor::from<int32_t>({-1, 0, 0, 0}, {4})}), Code::kOutOfRange,
               "row -1 of variable \"v\" float32[100000,2] (allowed: 0 to 99999)");
}

TEST_F(ServerFunctionTest, ALookupThatTakesNoRowSaysSoOfOthers) {
  const auto own = session("worker:0");
  const auto table = counting_rows(own, 8, {0, 1});
  Traced step(
      [&](const std::vector<Value>& inputs) {
        return std::vector<Value>{ops::gather_rows_or_zero(table->read(), inputs[0])};
      },
      {{DType::kInt32, {2}}});
  ServerFunction function({step.graph}, own);
  EXPECT_EQ(values_of(function.run({Tensor::from<int32_t>({-1, 3}, {2})})[0]),
            (std::vector<float>{0, 0, 3, 3}));
  for (const int32_t row : {-2, 8})
    EXPECT_ERROR(
        function.run({Tensor::from<int32_t>({0, row}, {2})}), Code::kOutOfRange,
        str("row ", row, " of variable \"v\" float32[8,2] (allowed: 0 to 7, and -1 for no row)"));
}

TEST_F(ServerFunctionTest, ScatteredSumsGoToTheirRows) {
  const auto own = session("worker:0");
  const auto table = counting_rows(own, 10, {0, 1, 0});
  Traced step(
      [&](const std::vector<Value>& inputs) {
        table->scatter(ScatterOp::kSub, inputs[0], inputs[1]);
        return std::vector<Value>{};
      },
      {{DType::kInt64, {3}}, {DType::kFloat32, {3, 2}}});
  ServerFunction function({step.graph}, own);
  function.run({Tensor::from<int64_t>({9, 4, 9}, {3}), Tensor::full(DType::kFloat32, {3, 2}, 1)});
  const auto values = values_of(table->value());
  EXPECT_EQ(values[2 * 9], 7);
  EXPECT_EQ(values[2 * 4], 3);
  EXPECT_EQ(values[2 * 5], 5);
}

TEST_F(ServerFunctionTest, AScatterOfOtherRowsChangesNothing) {
  const auto own = session("worker:0");
  const auto table = counting_rows(own, 4, {0, 1});
  const Tensor before = table->value(), twos = Tensor::full(DType::kFloat32, {2, 2}, 2);
  for (const ScatterOp op : {ScatterOp::kAdd, ScatterOp::kMul}) {
    Traced step(
        [&](const std::vector<Value>& inputs) {
          table->scatter(op, inputs[0], inputs[1]);
          return std::vector<Value>{};
        },
        {{DType::kInt64, {2}}, {DType::kFloat32, {2, 2}}});
    ServerFunction function({step.graph}, own);
    for (const int64_t row : {-1, 4})
      EXPECT_ERROR(function.run({Tensor::from<int64_t>({0, row}, {2}), twos}), Code::kOutOfRange,
                   str("index ", row, " at position 1"));
    EXPECT_ERROR(table->scatter(op, Tensor::from<int64_t>({0, -1}, {2}), twos), Code::kOutOfRange,
                 "-1");
  }
  EXPECT_EQ(values_of(table->value()), values_of(before));
}

// A function that is executed again may have other rows, on another server.
TEST_F(ServerFunctionTest, RowsOfWorkThatIsDoneAgainCountOnceWhicheverTheyAre) {
  const auto first = session("worker:0"), second = session("worker:1");
  const auto table = counting_rows(first, 10, {0, 1});
  const auto same = std::make_shared<ServerVariable>(table->info(), second);
  const auto ones = Tensor::full(DType::kFloat32, {1, 2}, 1);
  const auto add_row = [&](ServerSession& session, ServerVariable& table, int64_t row,
                           uint64_t number) {
    session.mark_pushes(ParameterClient::Source{"chief:0/lane-0", 1, number});
    table.scatter(ScatterOp::kAdd, Tensor::from<int64_t>({row}, {1}), ones);
  };
  add_row(*first, *table, 0, 1);
  add_row(*second, *same, 9, 1);
  const auto values = values_of(table->value());
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[2 * 9], 9) << "it has been done";
  add_row(*second, *same, 9, 2);
  EXPECT_EQ(values_of(table->value())[2 * 9], 10);
  const StrategyReport report = first->take_report();
  EXPECT_EQ(report.histograms.at("staleness").size(), 1u) << "what has no rows is no update";
  EXPECT_EQ(report.histograms.at("staleness").begin()->second, 1);
}

TEST_F(ServerFunctionTest, GradientsGoThroughTheRuleOfTheServers) {
  const auto own = session("worker:0");
  const auto table = counting_rows(own, 10, {0, 1, 0});
  const auto slots = table->move_by(optim::Adagrad(0.5).rule(), 0, {"optimizer/accumulator/v"});
  Traced step(
      [&](const std::vector<Value>& inputs) {
        parameter_server::add_push(table, {.learning_rate = ops::constant(0.5, DType::kFloat64),
                                           .values = inputs[1],
                                           .indices = inputs[0],
                                           .when = inputs[2]});
        return std::vector<Value>{};
      },
      {{DType::kInt64, {3}}, {DType::kFloat32, {3, 2}}, {DType::kBool, {}}});
  ServerFunction function({step.graph}, own);
  const Tensor ids = Tensor::from<int64_t>({9, -1, 9}, {3}),
               ones = Tensor::full(DType::kFloat32, {3, 2}, 1);
  function.run({ids, ones, Tensor::scalar(false)});
  EXPECT_EQ(function.pushed_version(), 0u);
  EXPECT_EQ(values_of(table->value())[18], 9);
  function.run({ids, ones, Tensor::scalar(true)});
  EXPECT_EQ(function.pushed_version(), 1u);
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_NEAR(values_of(slots[0]->value())[18], 4.1, 1e-6) << "two gradients of 1, and 0.1";
  EXPECT_NEAR(values_of(table->value())[18], 9 - 0.5 * 2 / std::sqrt(4.1), 1e-5);
  EXPECT_EQ(values_of(table->value())[0], 0);
}

// Whoever asks may hold locks that others wait for.
TEST_F(ServerFunctionTest, SaysAtOnceWhetherAnOptimizerHasTakenAVariableOver) {
  Gate gate;
  gate.close();
  const auto own = session("worker:0");
  const TensorSpec spec{DType::kFloat32, {2}};
  const auto slow = std::make_shared<ServerVariable>(
      ServerVariable::Options{.variable = {.name = "slow",
                                           .spec = spec,
                                           .initial_value =
                                               [&] {
                                                 gate.pass();
                                                 return Tensor::zeros(spec.dtype, spec.shape);
                                               }},
                              .servers = {0}},
      own);
  Traced reading([&](const std::vector<Value>&) { return std::vector<Value>{slow->read()}; }, {});
  const ServerFunction function({reading.graph}, own);
  std::thread making([&] { slow->info(); });
  EXPECT_TRUE(eventually([&] { return gate.holds_somebody(); }));
  EXPECT_FALSE(function.is_outdated());
  EXPECT_TRUE(gate.holds_somebody()) << "the shards are being made still";
  gate.open();
  making.join();
  counting_rows(own, 4, {0, 1}, "other")->move_by(optim::SGD(1).rule(), 0, {});
  EXPECT_FALSE(function.is_outdated());
  slow->move_by(optim::SGD(1).rule(), 0, {});
  EXPECT_TRUE(function.is_outdated());
}

TEST_F(ServerFunctionTest, AVariableIsReadAndWrittenWhileRulesTakeItOver) {
  const auto table = counting_rows(session("worker:0"), 10, {0, 1});
  const Tensor present = table->value();
  std::atomic<bool> done = false;
  std::thread using_it([&] {
    do {
      EXPECT_EQ(values_of(table->value()), values_of(present));
      EXPECT_EQ(values_of(table->row(9)), (std::vector<float>{9, 9}));
      table->assign(present);
    } while (!done);
  });
  for (int i = 0; i < 5; ++i) table->move_by(optim::SGD(1).rule(), 0, {});
  done = true;
  using_it.join();
  EXPECT_EQ(table->num_rules(), 5);
}

}  // namespace
}  // namespace cohort::testing
