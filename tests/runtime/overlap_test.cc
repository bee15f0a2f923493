#include <cmath>
#include <future>
#include <random>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"
#include "core/graph/passes/passes.h"
#include "core/ops/array_ops.h"
#include "core/ops/collective_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/nn_ops.h"
#include "core/ops/state_ops.h"
#include "core/runtime/plan.h"
#include "core/runtime/profiler.h"
#include "core/runtime/variable.h"
#include "tests/runtime/trace.h"

// Plans of several replicas that communicate behind their computation.
namespace cohort {
namespace {

constexpr auto kDeadline = std::chrono::seconds(30);

Tensor ramp(Shape shape, double phase) {
  Tensor t(DType::kFloat32, shape);
  for (int64_t i = 0; i < t.num_elements(); ++i)
    t.data<float>()[i] = static_cast<float>(std::sin(static_cast<double>(i) + phase));
  return t;
}

// A variable with a copy for each replica, or one copy that the first one writes.
class Copies final : public Variable {
 public:
  Copies(const std::string& name, const Tensor& initial, int replicas, bool shared = false)
      : Variable({.name = name, .spec = initial.spec()}), replicas_(replicas), shared_(shared) {
    for (int r = 0; r < (shared ? 1 : replicas); ++r) copies_.push_back(initial.clone());
  }
  Tensor storage(int replica) override {
    return copies_[shared_ ? 0 : static_cast<size_t>(replica)];
  }
  int num_replicas() const override { return replicas_; }
  std::vector<Device> devices() const override { return std::vector<Device>(copies_.size()); }
  bool is_written_by(int replica) const override { return !shared_ || replica == 0; }

 protected:
  Tensor load_value() const override { return copies_[0].clone(); }
  void store_value(const Tensor& value) override {
    for (Tensor& copy : copies_) copy.assign(value);
  }

 private:
  int replicas_;
  bool shared_;
  std::vector<Tensor> copies_;
};

// The replicas of one function, each a plan and a thread.
class Replicas {
 public:
  Replicas(const GraphFunction& function, int count, bool optimize = true)
      : communicators_(make_in_process_communicators(count)) {
    for (int r = 0; r < count; ++r)
      plans_.emplace_back(function,
                          PlanOptions{.local_replica = r, .optimize = optimize, .outside = false});
  }

  Communicator& communicator(int replica) { return *communicators_[static_cast<size_t>(replica)]; }
  const PlanStats& stats(int replica) const { return plans_[static_cast<size_t>(replica)].stats(); }

  // One step; outputs by replica. kDeadlineExceeded for one that does not end.
  std::vector<std::vector<Tensor>> run(const std::vector<std::vector<Tensor>>& feeds) {
    std::vector<std::future<std::vector<Tensor>>> futures;
    for (size_t r = 0; r < plans_.size(); ++r)
      futures.push_back(std::async(std::launch::async, [&, r] {
        const StepInfo step{.replica_id = static_cast<int>(r),
                            .num_replicas = static_cast<int>(plans_.size()),
                            .communicator = communicators_[r].get()};
        return plans_[r].run(feeds[r], step);
      }));
    for (auto& future : futures)
      if (future.wait_for(kDeadline) != std::future_status::ready)
        communicators_[0]->abort(Error(Code::kDeadlineExceeded, "the step does not end"));
    std::vector<std::vector<Tensor>> outputs;
    for (auto& future : futures) outputs.push_back(future.get());
    return outputs;
  }

 private:
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<Plan> plans_;
};

// Grows a random function whose reductions go on behind it, or block.
std::vector<Value> random_body(std::mt19937_64& random, bool overlap,
                               const std::vector<Value>& inputs,
                               const std::vector<std::shared_ptr<Copies>>& variables) {
  const auto reduce = [&](const std::vector<Value>& values) {
    return overlap ? ops::all_reduce_async(values, ReduceOp::kSum) : ops::all_reduce(values);
  };
  std::vector<Value> pool = inputs;
  const auto pick = [&] { return pool[random() % pool.size()]; };
  for (int i = 0; i < 40; ++i) {
    const Value a = pick(), b = pick();
    const auto& v = variables[random() % variables.size()];
    switch (random() % 9) {
      case 0:
        pool.push_back(ops::tanh(a + b));
        break;
      case 1:
        pool.push_back(ops::softmax(a));
        break;
      case 2:
        pool.push_back(ops::tanh(ops::matmul(a, ops::matmul(b, a, {.transpose_a = true}))));
        break;
      case 3:
        pool.push_back(ops::read_variable(v) * 0.5 + a);
        break;
      case 4:
        ops::assign(v, ops::tanh(a - b));
        break;
      case 5:
        pool.push_back(ops::all_reduce({a}, ReduceOp::kMax)[0]);
        break;
      default:
        for (const Value& sum : reduce({a, b, ops::reshape(a, {3, 4})}))
          pool.push_back(ops::tanh(sum));
    }
  }
  return {pick(), pick(), pool.back()};
}

// Every bit of two steps: outputs and the variables' copies.
std::vector<std::vector<float>> run_two_steps(uint64_t seed, bool overlap, int count,
                                              bool meet = false) {
  std::mt19937_64 random(seed);
  const std::vector<std::shared_ptr<Copies>> variables = {
      std::make_shared<Copies>("v", ramp({3, 4}, 1), count),
      std::make_shared<Copies>("w", ramp({3, 4}, 2), count)};
  const std::vector<TensorSpec> specs(2, {DType::kFloat32, {3, 4}});
  auto traced = trace(specs, [&](auto& x) { return random_body(random, overlap, x, variables); });
  if (meet) traced = meet_before_writing(traced);
  // Fusion rounds differently where a wait stands between two nodes.
  Replicas replicas(traced, count, /*optimize=*/false);
  std::vector<std::vector<Tensor>> feeds;
  for (int r = 0; r < count; ++r) feeds.push_back({ramp({3, 4}, r), ramp({3, 4}, 7 * r)});
  std::vector<std::vector<float>> bits;
  const auto add = [&](const Tensor& tensor) {
    const auto values = tensor.values<float>();
    bits.emplace_back(values.begin(), values.end());
  };
  for (int step = 0; step < 2; ++step)
    for (const auto& outputs : replicas.run(feeds))
      for (const Tensor& output : outputs) add(output);
  for (const auto& v : variables)
    for (int r = 0; r < count; ++r) add(v->storage(r));
  return bits;
}

TEST(OverlapTest, GivesTheBitsOfReductionsThatBlock) {
  const uint64_t first_seed = std::random_device{}();
  for (uint64_t seed = first_seed; seed < first_seed + 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int count = 1 + static_cast<int>(seed % 4);
    EXPECT_EQ(run_two_steps(seed, true, count), run_two_steps(seed, false, count));
  }
}

TEST(OverlapTest, GivesTheSameBitsWhereWritesWaitForAMeeting) {
  const uint64_t first_seed = std::random_device{}();
  for (uint64_t seed = first_seed; seed < first_seed + 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const int count = 1 + static_cast<int>(seed % 4);
    const auto expected = run_two_steps(seed, true, count);
    EXPECT_EQ(run_two_steps(seed, true, count, /*meet=*/true), expected);
  }
}

TEST(OverlapTest, FusedPlansComputeWhatPlainOnesDo) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::vector<std::shared_ptr<Copies>> variables = {
        std::make_shared<Copies>("v", ramp({3, 4}, 1), 2)};
    const std::vector<TensorSpec> specs(2, {DType::kFloat32, {3, 4}});
    const auto traced =
        trace(specs, [&](auto& x) { return random_body(random, true, x, variables); });
    std::vector<std::vector<Tensor>> results;
    for (const bool optimize : {true, false}) {
      variables[0]->assign(ramp({3, 4}, 1));
      Replicas replicas(traced, 2, optimize);
      auto outputs = replicas.run({{ramp({3, 4}, 1), ramp({3, 4}, 2)},  //
                                   {ramp({3, 4}, 3), ramp({3, 4}, 4)}});
      results.push_back(outputs[0]);
      results.back().push_back(variables[0]->value());
    }
    for (size_t i = 0; i < results[0].size(); ++i)
      for (int64_t k = 0; k < results[0][i].num_elements(); ++k)
        ASSERT_NEAR(results[0][i].data<float>()[k], results[1][i].data<float>()[k], 1e-4)
            << *traced.graph;
  }
}

TEST(OverlapTest, ACopyThatTheFirstReplicaWritesIsUpdatedOnceFromWhatAllComputed) {
  constexpr int kReplicas = 3;
  const auto w = std::make_shared<Copies>("w", ramp({6}, 1), kReplicas, /*shared=*/true);
  const auto traced = trace({{DType::kFloat32, {6}}}, [&](auto& x) {
    const Value loss = ops::reduce_sum(ops::read_variable(w) * x[0]);
    const auto gradient =
        ops::all_reduce_async({ops::softmax(ops::read_variable(w) * x[0])}, ReduceOp::kSum);
    ops::barrier();
    ops::assign(w, ops::read_variable(w) - gradient[0] * 0.5);
    ops::barrier();
    return std::vector<Value>{loss, ops::read_variable(w)};
  });
  Replicas replicas(traced, kReplicas);
  EXPECT_LT(replicas.stats(1).kernels, replicas.stats(0).kernels);
  const std::vector<std::vector<Tensor>> feeds = {{ramp({6}, 1)}, {ramp({6}, 5)}, {ramp({6}, 9)}};
  std::vector<double> expected(6);
  for (int i = 0; i < 6; ++i) expected[static_cast<size_t>(i)] = ramp({6}, 1).data<float>()[i];
  for (int step = 0; step < 20; ++step) {
    const auto outputs = replicas.run(feeds);
    std::vector<double> next = expected;
    for (int r = 0; r < kReplicas; ++r) {
      double loss = 0, total = 0;
      std::vector<double> e(6);
      for (size_t i = 0; i < 6; ++i) {
        const double z = expected[i] * feeds[static_cast<size_t>(r)][0].data<float>()[i];
        loss += z;
        total += e[i] = std::exp(z);
      }
      for (size_t i = 0; i < 6; ++i) next[i] -= 0.5 * e[i] / total;
      EXPECT_NEAR(outputs[static_cast<size_t>(r)][0].item(), loss, 1e-4 * (1 + std::abs(loss)));
    }
    expected = next;
    for (const auto& output : outputs)
      for (size_t i = 0; i < 6; ++i)
        ASSERT_NEAR(output[1].data<float>()[i], expected[i], 1e-4 * (1 + std::abs(expected[i])));
  }
}

TEST(OverlapTest, ReducesWhileLaterKernelsRun) {
  constexpr int64_t kSize = 256;
  const auto traced = trace({{DType::kFloat32, {kSize, kSize}}}, [](auto& x) {
    const Value sum = ops::all_reduce_async({ops::softmax(x[0])}, ReduceOp::kSum)[0];
    Value y = x[0];
    for (int i = 0; i < 8; ++i) y = ops::matmul(ops::softmax(y), x[0]);
    return std::vector<Value>{ops::matmul(y, sum)};
  });
  Replicas replicas(traced, 2);
  std::mutex mutex;
  std::vector<CommunicationEvent> communication;
  for (int r = 0; r < 2; ++r)
    replicas.communicator(r).set_observer([&](const CommunicationEvent& event) {
      const std::lock_guard lock(mutex);
      communication.push_back(event);
    });
  const std::vector<std::vector<Tensor>> feeds = {{ramp({kSize, kSize}, 1)},
                                                  {ramp({kSize, kSize}, 2)}};
  // A busy machine may let the background threads wait; not for ever.
  bool overlapped = false;
  const auto deadline = Profiler::Clock::now() + kDeadline;
  while (!overlapped && Profiler::Clock::now() < deadline) {
    const Profiler profiler;
    communication.clear();
    replicas.run(feeds);
    std::vector<Profiler::Event> waits;
    for (const auto& event : profiler.events())
      if (event.kind == "AllReduceWait") waits.push_back(event);
    ASSERT_EQ(waits.size(), 2u);
    for (const auto& event : communication)
      for (const auto& wait : waits) overlapped = overlapped || event.begin < wait.begin;
  }
  EXPECT_TRUE(overlapped) << "every reduction began only when its result was waited for";
}

}  // namespace
}  // namespace cohort
