// Workers that train a model of their own each, as threads.
#include "strategies/mix_weights.h"

#include <cmath>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "cohort.h"
#include "tests/collective/ranks.h"
#include "tests/strategies/on_workers.h"

namespace cohort {
namespace {

using callbacks::Mixing;
using callbacks::MixWeights;
using callbacks::MixWeightsOptions;
using ::testing::AllOf;
using ::testing::Each;
using testing::error_of;
using ::testing::HasSubstr;
using Weights = std::vector<float>;  // of a model, in the order of its variables
using CallbacksOf = std::function<std::vector<CallbackPtr>(int rank, Communicator& group)>;

constexpr int64_t kRows = 16, kBatch = 4, kEpochs = 5;
constexpr int64_t kSteps = kRows / kBatch * kEpochs;

// Points of a line, another one for each rank.
data::Dataset line(int rank, int64_t rows = kRows) {
  Tensor x(DType::kFloat32, {rows, 1}), label(DType::kFloat32, {rows, 1});
  for (int64_t i = 0; i < rows; ++i) {
    const float at = 2 * static_cast<float>(i) / static_cast<float>(rows) - 1;
    x.data<float>()[i] = at;
    label.data<float>()[i] = static_cast<float>(1 + 2 * rank) * at - static_cast<float>(rank);
  }
  return data::from_tensor_slices({{"x", x}, {"label", label}}).batch(kBatch);
}

Weights weights_of(const Variables& variables) {
  Weights weights;
  for (const auto& variable : variables) {
    const Tensor value = variable->value();
    weights.insert(weights.end(), value.data<float>(), value.data<float>() + value.num_elements());
  }
  return weights;
}

// A model of a line, without knowing anything.
Model make_model(const std::vector<nn::Layer>& layers = {nn::Dense(1)}) {
  Model model = nn::Sequential(layers);
  model.build({{DType::kFloat32, {1, 1}}});
  for (const auto& variable : model.trainable_variables())
    variable->assign(Tensor::zeros(DType::kFloat32, variable->spec().shape));
  model.compile({.optimizer = optim::SGD(0.1), .loss = losses::MeanSquaredError()});
  return model;
}

FitOptions quietly(std::vector<CallbackPtr> callbacks, int64_t epochs = kEpochs) {
  return {.epochs = epochs, .callbacks = std::move(callbacks), .verbose = Verbose::kSilent};
}

// The weights that each worker ends with.
std::vector<Weights> train(int workers, const CallbacksOf& callbacks_of) {
  std::vector<Weights> results(static_cast<size_t>(workers));
  testing::on_ranks(workers, [&](int rank, Communicator& group) {
    const auto strategy = OneDeviceStrategy();
    const auto scope = strategy->scope();
    Model model = make_model();
    model.fit(line(rank), quietly(callbacks_of(rank, group)));
    results[static_cast<size_t>(rank)] = weights_of(model.variables());
  });
  return results;
}

std::vector<Weights> train_mixing(int workers, const MixWeightsOptions& options) {
  return train(workers, [&](int, Communicator& group) {
    return std::vector<CallbackPtr>{MixWeights(group, options)};
  });
}

std::vector<Weights> train_alone(int workers) {
  return train(workers, [](int, Communicator&) { return std::vector<CallbackPtr>(); });
}

double distance(const Weights& a, const Weights& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum);
}

TEST(MixWeightsTest, WorkersEndNearerToEachOther) {
  const auto alone = train_alone(2);
  const double apart = distance(alone[0], alone[1]);
  ASSERT_GT(apart, 0.5);
  for (const Mixing mixing : {Mixing::kRing, Mixing::kRandomPairs}) {
    const auto together = train_mixing(2, {.mixing = mixing});
    EXPECT_LT(distance(together[0], together[1]), 0.5 * apart);
    const auto seldom = train_mixing(2, {.mixing = mixing, .every_steps = kSteps - 1});
    EXPECT_LT(distance(seldom[0], seldom[1]), apart);
    EXPECT_GT(distance(seldom[0], seldom[1]), distance(together[0], together[1]));
  }
}

TEST(MixWeightsTest, AveragesAreEqualAfterTheLastMixing) {
  const auto averaged = train_mixing(3, {.mixing = Mixing::kAverage, .every_steps = kSteps / 2});
  EXPECT_EQ(averaged[0], averaged[1]);
  EXPECT_EQ(averaged[0], averaged[2]);
  const auto before_the_end =
      train_mixing(3, {.mixing = Mixing::kAverage, .every_steps = kSteps - 1});
  EXPECT_NE(before_the_end[0], before_the_end[1]);
}

// Without a step after it, mixing moves no mean.
TEST(MixWeightsTest, OneMixingAtTheEndKeepsTheMean) {
  const auto alone = train_alone(3);
  for (const Mixing mixing : {Mixing::kRing, Mixing::kRandomPairs, Mixing::kAverage}) {
    const auto mixed = train_mixing(3, {.mixing = mixing, .every_steps = kSteps});
    for (size_t i = 0; i < alone[0].size(); ++i)
      EXPECT_NEAR(mixed[0][i] + mixed[1][i] + mixed[2][i], alone[0][i] + alone[1][i] + alone[2][i],
                  1e-5);
    EXPECT_NE(mixed, alone);
  }
}

TEST(MixWeightsTest, AWorkerAloneTrainsAsWithout) {
  for (const Mixing mixing : {Mixing::kRing, Mixing::kRandomPairs, Mixing::kAverage})
    EXPECT_EQ(train_mixing(1, {.mixing = mixing}), train_alone(1));
}

// So that a second fit goes on with pairs of later rounds.
TEST(MixWeightsTest, StepsAreCountedOverAllFits) {
  std::set<Weights> results;
  std::mutex mutex;
  testing::on_ranks(3, [&](int rank, Communicator& group) {
    const auto strategy = OneDeviceStrategy();
    const auto scope = strategy->scope();
    Model model = make_model();
    const auto callback =
        MixWeights(group, {.mixing = Mixing::kAverage, .every_steps = kRows / kBatch * 2});
    for (int fit = 0; fit < 2; ++fit) model.fit(line(rank), quietly({callback}, 1));
    const std::lock_guard lock(mutex);
    results.insert(weights_of(model.variables()));
  });
  EXPECT_EQ(results.size(), 1u) << "the last step of the second fit is the first that mixes";
}

TEST(MixWeightsTest, MovingStatisticsAreMixedWhereAskedFor) {
  for (const bool with : {false, true}) {
    std::set<Weights> trained, all;
    std::mutex mutex;
    testing::on_ranks(2, [&](int rank, Communicator& group) {
      const auto strategy = OneDeviceStrategy();
      const auto scope = strategy->scope();
      Model model = make_model({nn::Dense(2), nn::BatchNormalization(), nn::Dense(1)});
      const auto callback =
          MixWeights(group, {.mixing = Mixing::kAverage, .with_moving_statistics = with});
      for (const auto& variable : model.trainable_variables())
        variable->assign(Tensor::full(DType::kFloat32, variable->spec().shape, 0.1 + 0.2 * rank));
      model.fit(line(rank), quietly({callback}));
      const std::lock_guard lock(mutex);
      trained.insert(weights_of(model.trainable_variables()));
      all.insert(weights_of(model.variables()));
    });
    EXPECT_EQ(trained.size(), 1u);
    EXPECT_EQ(all.size(), with ? 1u : 2u);
  }
}

TEST(MixWeightsTest, WorkersThatDoNotEndAfterTheSameStepAreNamed) {
  for (const Mixing mixing : {Mixing::kRing, Mixing::kRandomPairs, Mixing::kAverage}) {
    std::vector<std::string> messages(4);
    testing::on_ranks(4, [&](int rank, Communicator& group) {
      const auto strategy = OneDeviceStrategy();
      const auto scope = strategy->scope();
      Model model = make_model();
      const Error error = error_of([&] {
        model.fit(line(rank, rank == 2 ? kRows / 2 : kRows),
                  quietly({MixWeights(group, {.mixing = mixing})}, 1));
      });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      messages[static_cast<size_t>(rank)] = error.message();
    });
    EXPECT_THAT(messages, Each(AllOf(HasSubstr("MixWeights"), HasSubstr("rank 2 mixes 0 tensors"),
                                     HasSubstr("in round 2"))));
  }
}

TEST(MixWeightsTest, OtherOptionsAreAnErrorOnAllThatEndsNothing) {
  testing::on_ranks(3, [](int rank, Communicator& group) {
    const auto strategy = OneDeviceStrategy();
    const auto scope = strategy->scope();
    Model model = make_model();
    const Error error = error_of([&] {
      model.fit(line(rank), quietly({MixWeights(group, {.every_steps = rank == 1 ? 3 : 2})}));
    });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_THAT(error.message(), HasSubstr("rank 0 has {kRing, every_steps 2"));
    EXPECT_THAT(error.message(), HasSubstr("rank 1 has {kRing, every_steps 3"));
    group.barrier();
  });
}

TEST(MixWeightsTest, OptionsOutOfRangeAreRefused) {
  const auto group = make_in_process_communicators(1);
  EXPECT_EQ(error_of([&] { MixWeights(*group[0], {.every_steps = 0}); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] { MixWeights(*group[0], {.neighbour_weight = 0.6}); }).code(),
            Code::kInvalidArgument);
}

TEST(MixWeightsTest, WorkersThatTrainOneModelAreRefused) {
  const auto errors = testing::on_workers(2, [](MultiWorkerMirroredStrategy& strategy) {
    const auto scope = strategy.scope();
    const auto group = make_in_process_communicators(1);
    Model model = make_model();
    model.fit(line(0), quietly({MixWeights(*group[0])}));
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("FAILED_PRECONDITION"),
                                 HasSubstr("workers that train a model of their own"))));
}

}  // namespace
}  // namespace cohort
