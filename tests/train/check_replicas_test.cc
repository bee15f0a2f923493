// Copies of a variable that are not the same any more, of workers that are threads.
#include <utility>

#include <gmock/gmock.h>

#include "tests/train/multi_worker_testing.h"

namespace cohort::testing {
namespace {

using ::testing::Each;
using Worker = MultiWorkerMirroredStrategy;

// Workers that share no memory, so that each of their replicas has a copy.
Worker::Options with_copies(std::vector<std::string> devices) {
  return {.devices = std::move(devices), .backend = CommunicationBackend::kTcp};
}

// In the mantissa of a float32, where rounding does not take it back.
void flip_a_bit(Variable& variable, int replica) {
  auto* const bytes = static_cast<unsigned char*>(variable.storage(replica).raw());
  bytes[2] ^= 0x10;
}

// After the second step, in the last replica.
CallbackPtr flip_on(const Worker& worker) {
  auto hooks = std::make_shared<Hooks>();
  hooks->batch_end = [is_chief = worker.is_chief()](Training& training) {
    if (training.total_steps() != 2 || is_chief) return;
    Variable& kernel = *training.model().variables()[0];
    flip_a_bit(kernel, kernel.num_replicas() - 1);
  };
  return hooks;
}

class CheckReplicasTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { set_logical_cpus(2, 1); }
  static void TearDownTestSuite() { set_logical_cpus(1); }
};

TEST_F(CheckReplicasTest, NamesTheOneThatDiffersOnAllWorkers) {
  const auto errors_with = [](int64_t every_steps) {
    return on_workers(
        2,
        [=](Worker& worker) {
          const auto scope = worker.scope();
          classifier().fit(
              points(64).batch(8),
              quietly({flip_on(worker), callbacks::CheckReplicas({.every_steps = every_steps})},
                      1));
        },
        with_copies({"cpu:0", "cpu:1"}));
  };
  const std::string what =
      "variable \"dense/kernel\" is not the same on all replicas: replica 3 (worker:1) differs "
      "from most (peer worker:1)";
  EXPECT_THAT(errors_with(3),
              Each("DATA_LOSS: fit: epoch 1, step 4: CheckReplicas: after step 3: " + what));
  EXPECT_THAT(errors_with(100), Each("DATA_LOSS: CheckReplicas: after step 8: " + what))
      << "when training ends";
}

TEST_F(CheckReplicasTest, OfTwoNobodyKnowsWhichIsRight) {
  const auto errors = on_workers(
      2,
      [](Worker& worker) {
        const auto scope = worker.scope();
        const Model model = classifier();
        check_replicas(worker, model.variables());
        if (!worker.is_chief())
          for (const size_t i : {size_t{1}, size_t{2}}) flip_a_bit(*model.variables()[i], 0);
        check_replicas(worker, model.variables());
      },
      with_copies({"cpu:0"}));
  EXPECT_THAT(errors,
              Each("DATA_LOSS: variable \"dense/bias\" is not the same on all replicas: replica 1 "
                   "(worker:1) differs from replica 0 (worker:0); neither is 1 more of the "
                   "variables (peer worker:1)"));
}

// Whose moving statistics are each replica's own.
TEST_F(CheckReplicasTest, LeavesTrainingAsItIs) {
  const auto train = [](Worker& worker, std::vector<CallbackPtr> callbacks) {
    const auto scope = worker.scope();
    set_global_seed(3);
    auto model = nn::Sequential({nn::Dense(8), nn::BatchNormalization(), nn::Dense(2)});
    compile(model);
    model.fit(points(43).batch(8), quietly(std::move(callbacks)));
    return bits(model);
  };
  for (const auto& options :
       {with_copies({"cpu:0", "cpu:1"}), Worker::Options{.devices = {"cpu:0"}}}) {
    Found<std::string> plain, checked;
    on_good_workers(
        2, [&](Worker& worker) { plain.set(worker, train(worker, {})); }, options);
    on_good_workers(
        2,
        [&](Worker& worker) {
          checked.set(worker, train(worker, {callbacks::CheckReplicas({.every_steps = 1})}));
        },
        options);
    EXPECT_EQ(checked.common(), plain.common());
  }
}

TEST_F(CheckReplicasTest, RefusesWhatCannotBeCompared) {
  EXPECT_EQ(error_of([] { callbacks::CheckReplicas({.every_steps = 0}); }),
            "CheckReplicas: every_steps must be at least 1, got 0");
  EXPECT_EQ(error_of([] { check_replicas(current_strategy(), {nullptr}); }),
            "check_replicas: one of the variables is null");
}

}  // namespace
}  // namespace cohort::testing
