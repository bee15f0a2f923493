#include "benchmarks/scaling_model.h"

#include <limits>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

constexpr auto kRing = AllReduceAlgorithm::kRing;
constexpr auto kTree = AllReduceAlgorithm::kTree;
// 10 Gbit/s and 25 us.
constexpr Network kEthernet{.latency = 25e-6, .bytes_per_second = 1.25e9};
constexpr StepCosts kStep{.compute = 0.1, .overlappable = 0.04, .gradient_bytes = 100e6};

TEST(ScalingModel, AWorkerAloneDoesNotCommunicate) {
  for (auto algorithm : {kRing, kTree}) {
    EXPECT_EQ(all_reduce_rounds(algorithm, 1), 0);
    EXPECT_EQ(all_reduce_seconds(algorithm, kEthernet, 1e9, 1), 0);
  }
  for (auto scaling : {Scaling::kWeak, Scaling::kStrong}) {
    const Prediction alone = predict(kStep, kEthernet, scaling, 1);
    EXPECT_EQ(alone.communication, 0);
    EXPECT_EQ(alone.step, kStep.compute);
    EXPECT_EQ(alone.efficiency, 1);
  }
}

TEST(ScalingModel, RoundsOfRingAndTree) {
  EXPECT_EQ(all_reduce_rounds(kRing, 2), 2);
  EXPECT_EQ(all_reduce_rounds(kTree, 2), 2);
  EXPECT_EQ(all_reduce_rounds(kRing, 5), 8);
  EXPECT_EQ(all_reduce_rounds(kTree, 4), 4);
  EXPECT_EQ(all_reduce_rounds(kTree, 5), 6);
  EXPECT_EQ(all_reduce_rounds(kRing, 1024), 2046);
  EXPECT_EQ(all_reduce_rounds(kTree, 1024), 20);
}

TEST(ScalingModel, MuchDataIsBoundByBandwidth) {
  const Network no_latency{.latency = 0, .bytes_per_second = 1e9};
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kRing, no_latency, 1e9, 2), 1);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kRing, no_latency, 1e9, 4), 1.5);
  EXPECT_NEAR(all_reduce_seconds(kRing, no_latency, 1e9, 1'000'000), 2, 1e-5);  // its limit
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kTree, no_latency, 1e9, 4), 4);
  EXPECT_EQ(faster_all_reduce(kEthernet, 1e9, 64), kRing);
}

TEST(ScalingModel, LittleDataIsBoundByLatency) {
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kRing, kEthernet, 0, 8), 14 * 25e-6);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(kTree, kEthernet, 0, 8), 6 * 25e-6);
  EXPECT_EQ(faster_all_reduce(kEthernet, 4, 8), kTree);
  EXPECT_EQ(faster_all_reduce(kEthernet, 4, 2), kRing);  // the same rounds
}

TEST(ScalingModel, TheNetworkComesBackFromTheTimesItGives) {
  for (int64_t workers : {2, 3, 16}) {
    const double bytes = 8e6;
    const Network found = network_from(workers, all_reduce_seconds(kRing, kEthernet, 0, workers),
                                       bytes, all_reduce_seconds(kRing, kEthernet, bytes, workers));
    EXPECT_NEAR(found.latency, kEthernet.latency, 1e-12);
    EXPECT_NEAR(found.bytes_per_second, kEthernet.bytes_per_second, 1);
  }
}

TEST(ScalingModel, CommunicationBehindTheBackwardPassCostsNothing) {
  StepCosts step = kStep;
  step.gradient_bytes = 10e6;  // 8 ms at P = 2, of 40 ms behind which it can go on
  const Prediction hidden = predict(step, kEthernet, Scaling::kWeak, 2);
  EXPECT_GT(hidden.communication, 0.008);
  EXPECT_EQ(hidden.exposed, 0);
  EXPECT_EQ(hidden.efficiency, 1);

  const Prediction exposed = predict(kStep, kEthernet, Scaling::kWeak, 2);
  EXPECT_NEAR(exposed.communication, 0.08005, 1e-12);
  EXPECT_NEAR(exposed.exposed, 0.04005, 1e-12);
  EXPECT_NEAR(exposed.step, 0.14005, 1e-12);
  EXPECT_NEAR(exposed.efficiency, 0.1 / 0.14005, 1e-12);
}

TEST(ScalingModel, MoreWorkersAreNeverMoreEfficient) {
  for (auto scaling : {Scaling::kWeak, Scaling::kStrong}) {
    double efficiency = 1, communication = 0;
    for (int64_t workers = 1; workers <= 1024; ++workers) {
      const Prediction p = predict(kStep, kEthernet, scaling, workers);
      EXPECT_LE(p.efficiency, efficiency) << workers;
      EXPECT_GE(p.communication, communication) << workers;
      efficiency = p.efficiency;
      communication = p.communication;
    }
    EXPECT_LT(efficiency, 0.9);
  }
}

TEST(ScalingModel, MoreBandwidthAndLessLatencyAreNeverSlower) {
  for (int64_t workers : {2, 16, 1024}) {
    double step = std::numeric_limits<double>::infinity();
    for (double factor : {1.0, 2.0, 10.0, 1000.0}) {
      const Network faster{kEthernet.latency / factor, kEthernet.bytes_per_second * factor};
      const double next = predict(kStep, faster, Scaling::kWeak, workers).step;
      EXPECT_LE(next, step);
      step = next;
    }
    EXPECT_DOUBLE_EQ(step, kStep.compute);
  }
}

TEST(ScalingModel, StrongScalingDividesWhatIsComputed) {
  const Prediction four = predict(kStep, kEthernet, Scaling::kStrong, 4);
  EXPECT_DOUBLE_EQ(four.compute, 0.025);
  EXPECT_DOUBLE_EQ(four.exposed, four.communication - 0.01);
  EXPECT_LT(four.efficiency, predict(kStep, kEthernet, Scaling::kWeak, 4).efficiency);
}

TEST(ScalingModel, RefusesWhatCannotBe) {
  EXPECT_THROW(predict(kStep, kEthernet, Scaling::kWeak, 0), Error);
  EXPECT_THROW(predict({.compute = 0}, kEthernet, Scaling::kWeak, 2), Error);
  EXPECT_THROW(all_reduce_seconds(kRing, {1e-6, 0}, 1, 2), Error);
  EXPECT_THROW(all_reduce_seconds(kRing, {-1e-6, 1}, 1, 2), Error);
  EXPECT_THROW(all_reduce_seconds(kRing, kEthernet, std::numeric_limits<double>::quiet_NaN(), 2),
               Error);
  EXPECT_THROW(network_from(1, 1e-6, 1e6, 1e-3), Error);
  EXPECT_THROW(network_from(2, 1e-3, 1e6, 1e-3), Error);
}

}  // namespace
}  // namespace cohort::benchmarks
