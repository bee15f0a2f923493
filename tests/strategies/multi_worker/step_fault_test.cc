// A step whose communication fails is undone, or ends the job: workers never go on with variables
// that differ.
#include <atomic>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/faulty_communicator.h"
#include "tests/strategies/multi_worker/changed_link.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

constexpr int kWorkers = 2, kFaulty = 1, kVariables = 3;

// Each variable is a bucket.
class Training {
 public:
  explicit Training(MultiWorkerMirroredStrategy& strategy) : strategy_(strategy) {
    const auto scope = strategy.scope();
    for (int v = 0; v < kVariables; ++v)
      variables_.push_back(create_variable({.name = str("v", v),
                                            .spec = {DType::kFloat32, {}},
                                            .initial_value = [] { return Tensor::scalar(1.0f); }}));
    step_ = strategy.function([this](const Value& x) {
      Value loss = x * 0.0;
      for (const auto& variable : variables_) loss = loss + variable->read() * x;
      optimizer_.minimize(loss, variables_);
      return loss;
    });
  }

  void step() { strategy_.run(*step_, 1.0f); }
  std::vector<double> values() const {
    std::vector<double> values;
    for (const auto& variable : variables_) values.push_back(variable->value().item());
    return values;
  }

 private:
  MultiWorkerMirroredStrategy& strategy_;
  const optim::Optimizer optimizer_ = optim::SGD(0.25);
  std::vector<std::shared_ptr<Variable>> variables_;
  std::optional<StepFunction<Value, const Value&>> step_;
};

// Trains workers of which one has a fault in the second step, at a bucket of it. What each has
// thrown in the end.
std::vector<std::string> train(Fault fault, const std::function<void(Training&)>& body) {
  const auto links = make_in_process_links(kWorkers);
  FaultyCommunicator::Count count;
  fault.bucket += kVariables;
  return on_threads(kWorkers, [&](int rank) {
    const auto change = [&, rank](std::unique_ptr<Communicator> inner) {
      if (rank == kFaulty)
        inner = std::make_unique<FaultyCommunicator>(std::move(inner), fault, count);
      return inner;
    };
    MultiWorkerMirroredStrategy strategy(
        {.devices = {"cpu:0"},
         .communication = {.bytes_per_pack = 1},
         .link = std::make_shared<ChangedLink>(links[static_cast<size_t>(rank)], change)});
    Training training(strategy);
    training.step();
    body(training);
  });
}

TEST(StepFaultTest, BetweenBucketsEndsTheJobWithTheSameErrorOnAllWorkers) {
  for (const Fault& fault : {Fault{Fault::kLost, 1}, Fault{Fault::kLost, kVariables - 1}}) {
    const auto errors = train(fault, [](Training& training) {
      // The other worker may have all that it needs, and hears at its next step.
      const std::string first = error_of([&] {
                                  training.step();
                                  training.step();
                                }).what();
      EXPECT_THAT(first,
                  AllOf(HasSubstr("DEADLINE_EXCEEDED: "), HasSubstr("a result does not come"),
                        HasSubstr("has to be started again"), HasSubstr("(peer worker:1)")));
      EXPECT_EQ(error_of([&] { training.step(); }).what(), first) << "nothing works any more";
      training.step();
    });
    EXPECT_THAT(errors, Each(HasSubstr("a result does not come")));
    EXPECT_EQ(errors[0], errors[1]);
  }
}

TEST(StepFaultTest, BeforeAnyResultLeavesVariablesAsTheyWereAndTheNextStepWorks) {
  std::vector<std::vector<double>> ends(kWorkers);
  std::atomic<size_t> ended = 0;
  const auto errors = train({Fault::kNotStarted, 0}, [&](Training& training) {
    const auto before = training.values();
    EXPECT_THAT(error_of([&] { training.step(); }).what(), HasSubstr("a bucket is not there"));
    EXPECT_EQ(training.values(), before);
    training.step();
    EXPECT_NE(training.values(), before);
    ends[ended++] = training.values();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(ends[0], ends[1]);
}

}  // namespace
}  // namespace cohort::testing
