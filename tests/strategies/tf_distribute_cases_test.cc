// How tf.distribute behaves, case by case, with the numbers that it gives: 1 to 20, in
// tf_distribute_variable_cases_test.cc, are variables, 21 to 33 steps and values, 34 to 42
// reductions, and 43 to 53, in tf_distribute_input_cases_test.cc, input. Where a strategy here does
// something else, docs/differences.md says so, and the case has what it does.
#include <cmath>
#include <future>
#include <thread>

#include <gmock/gmock.h>

#include "tests/strategies/tf_distribute_testing.h"

namespace cohort {
namespace {

INSTANTIATE_TEST_SUITE_P(Cases, TfDistribute,
                         ::testing::Values(Case{Kind::kMirrored, 2}, Case{Kind::kCentral, 2}),
                         ::testing::PrintToStringParamName());

// --- Steps and values

TEST_P(TfDistribute, Case21) {
  const auto id = run([] { return replica().replica_id_in_sync_group(); });
  EXPECT_EQ(strategy_->reduce(ReduceOp::kSum, id).item(), 1);
  EXPECT_EQ(results(run([](Value x) { return x * 2.0; }, 3.0f)), (Numbers{6, 6}));
}

TEST_P(TfDistribute, Case22) {
  const auto parts = strategy_->split_batch({floats({0, 1, 2, 3, 4, 5, 6, 7})});
  const PerReplica<Tensor> values = {parts[0][0], parts[1][0]};
  EXPECT_EQ(to_doubles(strategy_->reduce("sum", values)), (Numbers{4, 6, 8, 10}));
  EXPECT_EQ(strategy_->reduce("sum", values, 0).item(), 28);
  EXPECT_EQ(strategy_->reduce("mean", values, 0).item(), 3.5);
}

TEST_P(TfDistribute, Case23) {
  const PerReplica<Tensor> values = {floats({0, 1, 2, 3}), floats({4, 5})};
  EXPECT_EQ(strategy_->reduce("mean", values, 0).item(), 15.0 / 6);
  error_of(Code::kInvalidArgument, [&] { strategy_->reduce("sum", values); });
}

TEST_P(TfDistribute, Case24) {
  EXPECT_EQ(strategy_->reduce("mean", PerReplica<Tensor>{floats({2, 4}), floats({})}, 0).item(), 3);
}

TEST_P(TfDistribute, Case25) {
  const PerReplica<Tensor> values = {floats({1, 2}), floats({3, 4})};
  for (const int64_t axis : {5, -3})
    error_of(Code::kInvalidArgument, [&] { strategy_->reduce("sum", values, axis); });
  EXPECT_EQ(strategy_->reduce("sum", values, -1).item(), 10);
  EXPECT_EQ(to_doubles(strategy_->reduce("sum", values)), (Numbers{4, 6}));
  error_of(Code::kInvalidArgument, [&] { strategy_->reduce("MAX", values); });
}

// Case 26 (arguments that are no list): the arguments of run are those of a C++ call.

TEST_P(TfDistribute, Case27) {
  const auto gather = [](Value x) { return replica().all_gather(x, 0); };
  EXPECT_EQ(to_doubles(run(gather, floats({1, 2, 3}))[1]), (Numbers{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(to_doubles(run(gather, PerReplica<Tensor>{floats({0}), floats({1})})[0]),
            (Numbers{0, 1}));
  const auto rows = run(gather, PerReplica<Tensor>{zeros({1, 2}), zeros({2, 2})});
  for (const Tensor& all : rows) EXPECT_EQ(all.shape(), (Shape{3, 2}));
}

// Sparse values cannot be handed to gather, whose arguments are tensors.
TEST_P(TfDistribute, Case28) {
  const PerReplica<Tensor> values = {zeros({1, 2, 3}), zeros({1, 3, 3})};
  EXPECT_EQ(strategy_->gather(values, 1).shape(), (Shape{1, 5, 3}));
  for (const int64_t axis : {0, 2})
    error_of(Code::kInvalidArgument, [&] { strategy_->gather(values, axis); });
  error_of(Code::kInvalidArgument, [&] { strategy_->gather(ids(), 0); });
}

TEST_P(TfDistribute, Case29) {
  const auto seen = run(
      [](Value x, Value y) {
        auto results = replica().all_reduce(ReduceOp::kSum, std::vector{x, y});
        results.push_back(gradients(results[0], {x})[0].values);
        return results;
      },
      1.0f, 2.0f);
  EXPECT_EQ(results(seen[0]), n_times(2));
  EXPECT_EQ(results(seen[1]), n_times(4));
  EXPECT_EQ(results(seen[2]), n_times(2));
}

TEST_P(TfDistribute, Case30) {
  const auto other = make_strategy({Kind::kMirrored, 2});
  error_of(Code::kFailedPrecondition, [&] { const auto scope = other->scope(); });
  { const auto again = strategy_->scope(); }
  error_of(Code::kFailedPrecondition,
           [&] { run([&](Value x) { return strategy_->reduce("sum", ids()), x; }, 1.0f); });
}

// In place of merge_call are collectives. A loop is part of the trace; a nested function is none
// that replicas run.
TEST_P(TfDistribute, Case31) {
  const auto looped = run(
      [](Value x) {
        for (int i = 0; i < 3; ++i) x = replica().all_reduce(ReduceOp::kSum, x);
        return x;
      },
      1.0f);
  EXPECT_EQ(results(looped), n_times(8));
  const auto v = on_write(number(1), Aggregation::kMean);
  const std::function<Value(const Value&)> calls[] = {
      [](const Value& x) { return replica().all_reduce(ReduceOp::kSum, x); },
      [](const Value& x) { return replica().all_gather(ops::reshape(x, {1}), 0); },
      [&](const Value& x) { return v->assign(x); },
      [](const Value& x) {
        return current_strategy().reduce_gradients({Gradient{.values = x}})[0].values;
      }};
  for (const auto& call : calls)
    error_of(Code::kFailedPrecondition, [&] {
      run(
          [&](Value x) {
            function([&](Value y) { return call(y); })({number(1)});
            return x;
          },
          1.0f);
    });
  EXPECT_EQ(copies(v), n_times(1));
}

// One trace serves all replicas.
TEST_P(TfDistribute, Case32) {
  const auto step = strategy_->function([](Value x) { return x; });
  strategy_->run(step, ids());
  EXPECT_EQ(step.trace_count(), 1);
  for (int i = 0; i < 9; ++i) strategy_->run(step, ids());
  EXPECT_EQ(step.trace_count(), 1);
}

TEST_P(TfDistribute, Case33) {
  const Numbers values = {3, 2, 1};
  const auto distributed = strategy_->distribute_values_from_function([&](const ValueContext& c) {
    EXPECT_EQ(c.num_replicas_in_sync, 2);
    return number(values[static_cast<size_t>(c.replica_id_in_sync_group)]);
  });
  EXPECT_EQ(results(distributed), (Numbers{3, 2}));
}

// --- Reductions

// Replica r of all those in sync brings r + 1.
void expect_reduced(Strategy& strategy, double sum, double mean) {
  const auto scope = strategy.scope();
  const auto step = strategy.function([] {
    const Value x = ops::cast(replica().replica_id_in_sync_group(), DType::kFloat32) + 1.0;
    return std::vector{replica().all_reduce(ReduceOp::kSum, x),
                       replica().all_reduce(ReduceOp::kMean, x), x};
  });
  const auto seen = strategy.run(step);
  for (size_t r = 0; r < seen[0].size(); ++r) {
    EXPECT_EQ(seen[0][r].item(), sum);
    EXPECT_EQ(seen[1][r].item(), mean);
  }
  EXPECT_EQ(strategy.reduce("sum", seen[2]).item(), sum);
  EXPECT_EQ(strategy.reduce("mean", seen[2]).item(), mean);
}

constexpr CommunicationImplementation kImplementations[] = {CommunicationImplementation::kAuto,
                                                            CommunicationImplementation::kRing,
                                                            CommunicationImplementation::kNccl};

// NCCL is for GPUs: on others there is a warning, and the result is the same.
TEST_P(TfDistribute, Case34) {
  scope_.exit();
  const std::pair<double, double> expected[] = {{1, 1}, {3, 1.5}, {6, 2}, {10, 2.5}};
  for (const auto implementation : kImplementations)
    for (const int devices : {1, 2, 4}) {
      std::vector<std::string> names;
      for (int i = 0; i < devices; ++i) names.push_back(str("cpu:", i));
      const auto [sum, mean] = expected[devices - 1];
      const CommunicationOptions communication = {.implementation = implementation};
      if (GetParam().kind == Kind::kCentral) {
        CentralStorageStrategy strategy({.compute_devices = names, .communication = communication});
        expect_reduced(strategy, sum, mean);
        continue;
      }
      MirroredStrategy strategy({.devices = names, .communication = communication});
      expect_reduced(strategy, sum, mean);
      if (devices > 2) continue;
      const auto [sum_of_all, mean_of_all] = expected[2 * devices - 1];
      testing::on_good_workers(
          2,
          [&, sum_of_all = sum_of_all, mean_of_all = mean_of_all](auto& workers) {
            expect_reduced(workers, sum_of_all, mean_of_all);
          },
          {.devices = names, .communication = communication});
    }
}

TEST_P(TfDistribute, Case35) {
  const std::pair<Numbers, Numbers> expected[] = {{{4, 6}, {2, 3}}, {{16, 20}, {4, 5}}};
  for (const int replicas : {2, 4}) {
    const auto strategy = with_replicas(replicas);
    PerReplica<Tensor> first(static_cast<size_t>(replicas)), second = first;
    for (int r = 0; r < replicas; ++r) {
      first[static_cast<size_t>(r)] = number(2 * r + 1);
      second[static_cast<size_t>(r)] = number(2 * r + 2);
    }
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean}) {
      const auto& [sums, means] = expected[replicas / 2 - 1];
      const Numbers& wanted = op == ReduceOp::kSum ? sums : means;
      const auto step = strategy->function([op](Value a, Value b) {
        return replica().all_reduce(op, std::vector{a, b});
      });
      const auto in_step = strategy->run(step, first, second);
      for (size_t r = 0; r < first.size(); ++r)
        EXPECT_EQ((Numbers{in_step[0][r].item(), in_step[1][r].item()}), wanted);
      for (const auto& ops : {ReductionToOneDevice(), SharedMemoryAllReduce()}) {
        const auto between = ops->batch_reduce(op, {first, second});
        EXPECT_EQ((Numbers{between[0].item(), between[1].item()}), wanted);
      }
    }
  }
}

// The rows of a sparse sum of [10, 1], each of which comes once.
Numbers reduced_rows(Strategy& strategy, ReduceOp op, const PerReplica<Tensor>& indices,
                     const PerReplica<Tensor>& values) {
  const auto step = strategy.function([op](Value at, Value x) {
    const Gradient sum = replica().all_reduce(op, Gradient{x, at, 10});
    EXPECT_TRUE(sum.sparse());
    return std::vector{sum.indices, sum.values};
  });
  const auto seen = strategy.run(step, indices, values);
  const Numbers rows = to_doubles(seen[0][1]), row_values = to_doubles(seen[1][1]);
  Numbers table(10);
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i] < 0) continue;  // the place of a row that came before
    EXPECT_EQ(table[static_cast<size_t>(rows[i])], 0) << "row " << rows[i] << " comes twice";
    table[static_cast<size_t>(rows[i])] = row_values[i];
  }
  return table;
}

// Rows of several replicas are added up, where tf.distribute lists them one behind the other.
TEST_P(TfDistribute, Case36) {
  const auto column = [](const std::vector<float>& x) {
    return floats(x).reshape({static_cast<int64_t>(x.size()), 1});
  };
  const PerReplica<Tensor> at = {ints({0, 1}), ints({1, 2})}, x = {column({1, 2}), column({3, 4})};
  EXPECT_EQ(reduced_rows(*strategy_, ReduceOp::kSum, at, x),
            (Numbers{1, 5, 4, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(reduced_rows(*strategy_, ReduceOp::kMean, at, x),
            (Numbers{0.5, 2.5, 2, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(reduced_rows(*strategy_, ReduceOp::kSum, {ints({0}), ints({0, 1, 2})},
                         {column({1}), column({2, 3, 4})}),
            (Numbers{3, 3, 4, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_P(TfDistribute, Case37) {
  const auto seen = run(
      [](Value x) {
        const Value row = ops::reshape(x, {1, 1});
        const auto reduced = replica().all_reduce(
            ReduceOp::kSum,
            std::vector<Gradient>{{.values = x},
                                  {.values = row, .indices = ops::constant(ints({3})), .rows = 5},
                                  {.values = x * 10.0}});
        return std::vector{reduced[0].values, ops::reduce_sum(reduced[1].dense()),
                           reduced[2].values};
      },
      two(1, 2));
  EXPECT_EQ(results(seen[0]), n_times(3));
  EXPECT_EQ(results(seen[1]), n_times(3));
  EXPECT_EQ(results(seen[2]), n_times(30));
}

// There are no packs to count, and an implementation that is a number does not compile.
TEST_P(TfDistribute, Case38) {
  scope_.exit();
  error_of(Code::kInvalidArgument,
           [] { MirroredStrategy({.communication = {.bytes_per_pack = -1}}); });
  EXPECT_EQ(communication_implementation_from_name("nccl"), CommunicationImplementation::kNccl);
  const CommunicationOptions options = {.bytes_per_pack = 7, .timeout_seconds = 3};
  const auto merged = options.merge({.implementation = CommunicationImplementation::kRing});
  EXPECT_EQ(merged.bytes_per_pack, 7);
  EXPECT_EQ(merged.timeout_seconds, 3);
  EXPECT_EQ(merged.implementation, CommunicationImplementation::kRing);
  EXPECT_EQ(options.merge({.bytes_per_pack = 9}).bytes_per_pack, 9);
  // A group of workers with other numbers of devices.
  const auto links = make_in_process_links(2);
  std::vector<std::future<void>> workers;
  for (const auto& link : links)
    workers.push_back(std::async(std::launch::async, [link] {
      error_of(Code::kInvalidArgument, [&] {
        const std::vector<std::string> devices = {"cpu:0", "cpu:1"};
        MultiWorkerMirroredStrategy(
            {.devices = {devices.begin(), devices.begin() + 1 + link->rank()}, .link = link});
      });
    }));
}

// Between steps. Within one, dense, several at once and sparse: late_worker_test.cc.
TEST_P(TfDistribute, Case39) {
  scope_.exit();
  std::promise<void> given_up;
  testing::on_workers(2,
                      [&](MultiWorkerMirroredStrategy& strategy) {
                        if (strategy.is_chief()) {
                          error_of(Code::kDeadlineExceeded,
                                   [&] { strategy.reduce("sum", PerReplica<Tensor>{number(1)}); });
                          given_up.set_value();
                        } else {
                          EXPECT_EQ(given_up.get_future().wait_for(std::chrono::seconds(60)),
                                    std::future_status::ready);
                        }
                      },
                      {.devices = {"cpu:0"}, .worker_timeout = std::chrono::seconds(3)});
}

// Two threads begin collectives in opposite order: on one strategy, and on two that share devices.
TEST_P(TfDistribute, Case40) {
  const auto other = with_replicas(2);
  for (Strategy* second : {strategy_.get(), other.get()}) {
    const auto work = [](Strategy& strategy, bool small_first) {
      const auto sum =
          strategy.function([](Value x) { return replica().all_reduce(ReduceOp::kSum, x); });
      for (int i = 0; i < 50; ++i)
        for (const bool small : {small_first, !small_first})
          for (const Tensor& all : strategy.run(sum, small ? 1.0f : 2.0f))
            ASSERT_EQ(all.item(), small ? 2 : 4);
    };
    std::thread thread([&] { work(*strategy_, true); });
    work(*second, false);
    thread.join();
  }
}

// All-reduces in both branches of a conditional, which need not be the same on the replicas.
TEST_P(TfDistribute, Case41) {
  for (const int n : {1, 2, 3, 4}) {
    const auto strategy = with_replicas(n);
    const auto scope = strategy->scope();
    const auto step = strategy->function([](Value x, Value limit) {
      const auto sum = [](const Value& v) { return replica().all_reduce(ReduceOp::kSum, v); };
      return ops::cond(
          ops::less(x, limit), [&] { return sum(x); }, [&] { return sum(x * 10.0); });
    });
    PerReplica<Tensor> values(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) values[static_cast<size_t>(r)] = number(r + 1);
    const double total = n * (n + 1) / 2.0;
    const auto with_limit = [&](double limit) {
      return results(strategy->run(step, values, number(limit)));
    };
    EXPECT_EQ(with_limit(100), Numbers(static_cast<size_t>(n), total));
    EXPECT_EQ(with_limit(0), Numbers(static_cast<size_t>(n), 10 * total));
    Numbers mixed(static_cast<size_t>(n), 10 * total);
    mixed[0] = total;
    EXPECT_EQ(with_limit(1.5), mixed);
  }
}

// What a replica gives to a sum counts in the gradients of those that take the sum's branch,
// whichever it takes itself; what is no number on the side that it does not take counts nowhere.
TEST_P(TfDistribute, Case41OfGradients) {
  for (const int n : {1, 2, 3, 4}) {
    const auto strategy = with_replicas(n);
    const auto scope = strategy->scope();
    const auto step = strategy->function([](Value x) {
      const auto sum = [](const Value& v) { return replica().all_reduce(ReduceOp::kSum, v); };
      const Value y = ops::cond(
          ops::less(x, ops::constant(1.5, x.dtype())), [&] { return sum(x); },
          [&] { return sum(x * 10.0) + ops::sqrt(sum(x) * (x - 1.0)); });
      return gradients(y, {x})[0].dense();
    });
    PerReplica<Tensor> values(static_cast<size_t>(n));
    for (int r = 0; r < n; ++r) values[static_cast<size_t>(r)] = number(r + 1);
    const double total = n * (n + 1) / 2.0;
    double shared = 1;  // of replica 0, which alone takes the first side
    Numbers expected(static_cast<size_t>(n), 0);
    for (int r = 1; r < n; ++r) {
      shared += 10 + r / (2 * std::sqrt(total * r));
      expected[static_cast<size_t>(r)] = total / (2 * std::sqrt(total * r));
    }
    for (double& one : expected) one += shared;
    EXPECT_THAT(results(strategy->run(step, values)),
                ::testing::Pointwise(::testing::DoubleNear(1e-4), expected));
  }
}

// Variables that are kept equal are written in a branch that all replicas take, or none.
TEST_P(TfDistribute, Case41OfWrites) {
  const auto v = on_write(number(0), Aggregation::kSum),
             own = on_read(number(0), Aggregation::kSum);
  const auto add_if = [&](const VariablePtr& to, bool agreed) {
    return [=](Value x) {
      const Value asked = agreed ? replica().all_reduce(ReduceOp::kSum, x) : x;
      ops::only_if(ops::greater(asked, ops::constant(2, DType::kFloat32)),
                   [&] { to->assign_add(x); });
      return to->read();
    };
  };
  run(add_if(v, true), two(1, 1));
  EXPECT_EQ(copies(v), n_times(0));
  run(add_if(v, true), two(1, 2));
  EXPECT_EQ(copies(v), n_times(3));
  const auto message = error_of(Code::kInvalidArgument, [&] { run(add_if(v, false), two(1, 3)); });
  EXPECT_TRUE(contains(message, "reduce the condition")) << message;
  run(add_if(own, false), two(1, 3));
  EXPECT_EQ(own->value().item(), 3);
}

// An optimizer in a branch: weights, slots and counters move where it is taken, and stay elsewhere.
TEST_P(TfDistribute, Case41OfOptimizers) {
  const auto w = on_write(number(1), Aggregation::kMean);
  const auto optimizer = optim::SGD(0.5, {.momentum = 0.9});
  const auto step = [&](Value x) {
    const Value all = replica().all_reduce(ReduceOp::kSum, x);
    const Value loss = w->read() * x / 2.0;
    ops::only_if(ops::greater(all, ops::constant(0, DType::kFloat32)),
                 [&] { optimizer.minimize(loss, {w}); });
    return loss;
  };
  run(step, two(2, 2));
  EXPECT_EQ(copies(w), n_times(0));
  run(step, two(-2, -2));
  EXPECT_EQ(copies(w), n_times(0));
  EXPECT_EQ(optimizer.iterations()->value().item(), 1);
  run(step, two(2, 2));
  EXPECT_NEAR(w->value().item(), -1.9, 1e-6);
  EXPECT_EQ(optimizer.iterations()->value().item(), 2);
}

// Case 42 (replicas on a GPU and a CPU): see tests/runtime/gpu.

}  // namespace
}  // namespace cohort
