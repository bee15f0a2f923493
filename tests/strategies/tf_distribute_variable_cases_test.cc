// Cases 1 to 20 of how tf.distribute behaves (tf_distribute_cases_test.cc): variables.
#include <filesystem>
#include <random>
#include <tuple>

#include "tests/strategies/tf_distribute_testing.h"

namespace cohort {
namespace {

TEST_P(TfDistribute, Case01) {
  const auto v = on_write(number(0), Aggregation::kMean);
  run([&](Value id) { return v->assign(id); }, ids());
  EXPECT_EQ(copies(v), n_times(0.5));
}

TEST_P(TfDistribute, Case02) {
  const auto v = on_write(number(0), Aggregation::kMean);
  run([&](Value x) { return v->assign(x); }, two(1, 2));
  EXPECT_EQ(copies(v), n_times(1.5));
}

TEST_P(TfDistribute, Case03) {
  const auto v = on_write(number(0), Aggregation::kSum);
  run([&](Value x) { return v->assign(x); }, two(2, 2));
  EXPECT_EQ(copies(v), n_times(4));
  v->assign(number(0));
  run([&](Value x) { return v->assign_sub(x); }, two(-2, -2));
  EXPECT_EQ(copies(v), n_times(4));
}

TEST_P(TfDistribute, Case04) {
  const auto v = on_write(number(15), Aggregation::kOnlyFirstReplica);
  EXPECT_EQ(results(run([&](Value id) { return v->assign(id); }, ids())), n_times(0));
  EXPECT_EQ(copies(v), n_times(0));
}

TEST_P(TfDistribute, Case05) {
  const auto v = on_write(number(0), Aggregation::kNone);
  run([&] { return v->assign(ops::constant(5, DType::kFloat32)); });
  EXPECT_EQ(copies(v), n_times(5));
  const auto message = error_of(Code::kInvalidArgument,
                                [&] { run([&](Value x) { return v->assign(x); }, two(1, 2)); });
  for (const char* allowed : {"kSum", "kMean", "kOnlyFirstReplica"})
    EXPECT_TRUE(contains(message, allowed)) << message;
}

TEST_P(TfDistribute, Case06) {
  const auto five = [](const VariablePtr& v) {
    return [v] { return v->assign(ops::constant(5, DType::kFloat32)); };
  };
  const auto sum = on_write(number(0), Aggregation::kSum),
             mean = on_write(number(0), Aggregation::kMean);
  error_of(Code::kInvalidArgument, [&] { run(five(sum)); });
  run(five(mean));
  EXPECT_EQ(copies(mean), n_times(5));
}

TEST_P(TfDistribute, Case07) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_write(number(0), aggregation);
    v->assign(number(1));
    EXPECT_EQ(copies(v), n_times(1));
    v->assign(number(0));
    v->assign_add(number(1));
    EXPECT_EQ(copies(v), n_times(1));
    v->assign(number(0));
    v->assign_sub(number(-1));
    EXPECT_EQ(copies(v), n_times(1));
  }
}

TEST_P(TfDistribute, Case08) {
  const auto v = on_write(number(1), Aggregation::kNone);
  scope_.exit();
  v->assign(number(3));
  EXPECT_EQ(copies(v), n_times(3));
}

TEST_P(TfDistribute, Case09) {
  const auto random = [] {
    return create_variable({.name = "v", .spec = {DType::kFloat32, {9}}, .initial_value = [] {
                              std::random_device seed;
                              std::vector<float> values(9);
                              for (float& value : values)
                                value = std::uniform_real_distribution<float>()(seed);
                              return floats(values);
                            }});
  };
  VariablePtr v;
  run([&] {
    if (v == nullptr) v = random();
    return v->read();
  });
  EXPECT_EQ(copies(v), n_times(to_doubles(v->value())));
  testing::on_good_workers(2, [&](MultiWorkerMirroredStrategy& workers) {
    const auto scope = workers.scope();
    const auto mine = random();
    const auto all = workers.gather(workers.run(workers.function([&] { return mine->read(); })), 0);
    const auto values = to_doubles(mine->value());
    EXPECT_EQ(to_doubles(all.slice_rows(0, 9)), values);
    EXPECT_EQ(to_doubles(all.slice_rows(9, 18)), values);
  });
}

TEST_P(TfDistribute, Case10) {
  for (const auto& [replicas, sum, mean] : {std::tuple(2, 1.0, 0.5), std::tuple(4, 6.0, 1.5)}) {
    const auto strategy = with_replicas(replicas);
    const auto scope = strategy->scope();
    const auto expect_value = [&](Aggregation aggregation, double expected) {
      const auto v = on_read(number(0), aggregation);
      strategy->run(strategy->function([&] {
        return v->assign(ops::cast(replica().replica_id_in_sync_group(), DType::kFloat32));
      }));
      EXPECT_EQ(v->value().item(), expected);
    };
    expect_value(Aggregation::kSum, sum);
    expect_value(Aggregation::kMean, mean);
    expect_value(Aggregation::kOnlyFirstReplica, 0);
  }
}

TEST_P(TfDistribute, Case11) {
  const auto v = on_read(number(3), Aggregation::kNone);
  error_of(Code::kInvalidArgument, [&] { v->value(); });
  error_of(Code::kInvalidArgument, [&] { seen_outside(v); });
  EXPECT_EQ(results(run([&] { return v->read(); })), n_times(3));
}

TEST_P(TfDistribute, Case12) {
  const auto sum = on_read(number(0), Aggregation::kSum),
             mean = on_read(number(0), Aggregation::kMean);
  sum->assign(number(2));
  EXPECT_EQ(copies(sum), n_times(1));
  error_of(Code::kInvalidArgument, [&] { sum->assign_add(number(1)); });
  error_of(Code::kInvalidArgument, [&] { sum->assign_sub(number(1)); });
  mean->assign(number(2));
  mean->assign_add(number(5));
  mean->assign_sub(number(1));
  EXPECT_EQ(copies(mean), n_times(6));
}

TEST_P(TfDistribute, Case13) {
  const auto v = on_read(number(0), Aggregation::kMean);
  run([&](Value id) { return v->assign(id); }, ids());
  EXPECT_EQ(seen_outside(v) + 1, 1.5);
  EXPECT_EQ(results(run([&] { return v->read() + 1.0; })), (Numbers{1, 2}));
}

TEST_P(TfDistribute, Case14) {
  for (const auto& [aggregation, saved, split] :
       {std::tuple(Aggregation::kSum, 7.0, 1.0), std::tuple(Aggregation::kMean, 3.5, 2.0)}) {
    const auto v = on_read(number(0), aggregation);
    run([&](Value x) { return v->assign(x); }, two(4, 3));
    save_variables(file("on_read"), {v});
    v->assign(number(0));
    load_variables(file("on_read"), {v});
    EXPECT_EQ(copies(v), n_times(3.5));
    const auto plain = make_local_variable(
        {.name = "v", .spec = {DType::kFloat32, {}}, .initial_value = [] { return number(2); }});
    save_variables(file("plain"), {plain});
    load_variables(file("on_read"), {plain});
    EXPECT_EQ(plain->value().item(), saved);
    load_variables(file("plain"), {v});
    EXPECT_EQ(copies(v), n_times(split));
  }
  std::filesystem::remove(file("on_read"));
  std::filesystem::remove(file("plain"));
}

TEST_P(TfDistribute, Case15) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto plain = make_local_variable(
      {.name = "v", .spec = {DType::kFloat32, {}}, .initial_value = [] { return number(3); }});
  save_variables(file("mirrored"), {v});
  save_variables(file("ordinary"), {plain});
  load_variables(file("mirrored"), {plain});
  load_variables(file("ordinary"), {v});
  EXPECT_EQ(plain->value().item(), 2);
  EXPECT_EQ(copies(v), n_times(3));
  std::filesystem::remove(file("mirrored"));
  std::filesystem::remove(file("ordinary"));
}

TEST_P(TfDistribute, Case16) {
  const auto v = on_write(number(2), Aggregation::kNone);
  const auto sums =
      run([&](Value id) { return replica().all_reduce(ReduceOp::kSum, v->read()) + id; }, ids());
  EXPECT_EQ(results(sums), (Numbers{4, 5}));
}

TEST_P(TfDistribute, Case17) {
  const auto scattered = [&](ScatterOp op, const VariablePtr& v, const PerReplica<Tensor>& rows,
                             const PerReplica<Tensor>& by) {
    run([&](Value at, Value x) { v->scatter(op, at, x); }, rows, by);
    EXPECT_EQ(copies(v), n_times(to_doubles(v->value())));
    return to_doubles(v->value());
  };
  const PerReplica<Tensor> own = {ints({0}), ints({1})},
                           own_and_next = {ints({0, 1}), ints({1, 2})};
  EXPECT_EQ(scattered(ScatterOp::kSub, on_write(zeros({3}), Aggregation::kMean), own_and_next,
                      {floats({0, 1}), floats({1, 2})}),
            (Numbers{0, -1, -1}));
  EXPECT_EQ(scattered(ScatterOp::kAdd, on_write(ints({0, 0, 0}), Aggregation::kSum), own_and_next,
                      {ints({0, 1}), ints({1, 2})}),
            (Numbers{0, 2, 2}));
  EXPECT_EQ(scattered(ScatterOp::kMul, on_write(floats({2, 1, 1}), Aggregation::kMean), own,
                      {floats({2}), floats({3})}),
            (Numbers{2, 1.5, 1}));
  EXPECT_EQ(scattered(ScatterOp::kDiv, on_write(ints({1, 6, 1}), Aggregation::kSum), own,
                      {ints({2}), ints({3})}),
            (Numbers{0, 2, 1}));
}

TEST_P(TfDistribute, Case18) {
  const auto scatter = [&](ScatterOp op, const VariablePtr& v, double by) {
    run([&](Value x) { v->scatter(op, ops::constant(ints({1})), ops::reshape(x, {1})); },
        two(by, by));
  };
  const Tensor rows = floats({0, 2, 0});
  for (const ScatterOp op : {ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate})
    error_of(Code::kUnimplemented, [&] { scatter(op, on_write(rows, Aggregation::kSum), 1); });
  const auto first = [&] { return on_write(rows, Aggregation::kOnlyFirstReplica); };
  const auto least = first(), updated = first();
  scatter(ScatterOp::kMin, least, 1);
  EXPECT_EQ(copies(least), n_times({0, 1, 0}));
  scatter(ScatterOp::kUpdate, updated, 3);
  EXPECT_EQ(copies(updated), n_times({0, 3, 0}));
}

TEST_P(TfDistribute, Case19) {
  for (const Aggregation aggregation : kAggregations) {
    const auto v = on_read(zeros({3}), aggregation);
    for (const ScatterOp op : {ScatterOp::kAdd, ScatterOp::kSub, ScatterOp::kMul, ScatterOp::kDiv,
                               ScatterOp::kMin, ScatterOp::kMax, ScatterOp::kUpdate})
      error_of(Code::kUnimplemented, [&] {
        run([&] { v->scatter(op, ops::constant(ints({1})), ops::constant(floats({1}))); });
      });
  }
}

TEST_P(TfDistribute, Case20) {
  const auto v = on_write(floats({4}), Aggregation::kNone);
  for (const auto& [op, expected] :
       {std::pair(ScatterOp::kSub, 2), std::pair(ScatterOp::kAdd, 4), std::pair(ScatterOp::kMax, 4),
        std::pair(ScatterOp::kMin, 2), std::pair(ScatterOp::kMul, 4), std::pair(ScatterOp::kDiv, 2),
        std::pair(ScatterOp::kUpdate, 2)}) {
    run([&, op = op] { v->scatter(op, ops::constant(ints({0})), ops::constant(floats({2}))); });
    EXPECT_EQ(copies(v), n_times(expected));
  }
}

}  // namespace
}  // namespace cohort
