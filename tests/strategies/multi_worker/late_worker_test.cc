// Workers that are alive and do not come are named by those that wait for them.
#include <latch>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/collective/forwarding_communicator.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "strategies/multi_worker/cluster_link.h"
#include "strategies/multi_worker_mirrored_strategy.h"
#include "strategies/process_group.h"
#include "tests/strategies/cluster/coordination/job.h"
#include "tests/strategies/multi_worker/changed_link.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLate = 1;
constexpr seconds kLimit(3);  // in which all have to start
constexpr CommunicationBackend kBackends[] = {CommunicationBackend::kSharedMemory,
                                              CommunicationBackend::kTcp};

std::shared_ptr<const ClusterResolver> resolver_of(const LocalJob& job, int rank) {
  return std::make_shared<LiteralResolver>(job.resolver(rank));
}

void expect_named(const Error& error, const std::string& how) {
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
  EXPECT_EQ(error.peer(), "worker:1") << error.what();
  EXPECT_THAT(error.message(), AllOf(HasSubstr("for worker:1 (rank 1"), HasSubstr(how)));
}

TEST(LateWorkerTest, IsNamedByAProcessGroup) {
  for (const CommunicationBackend backend : kBackends) {
    const LocalJob job(3);
    std::latch named(job.size() - 1);
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group(
          {.resolver = resolver_of(job, rank), .backend = backend, .limit = kLimit});
      if (rank == kLate) return named.wait();
      const Error error = error_of([&] { collective::barrier(group); });
      named.count_down();
      expect_named(error, "a barrier");
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  }
}

TEST(LateWorkerTest, WhoComesToTheEndOfAProcessGroupIsNamedByThoseThatStillCall) {
  for (const CommunicationBackend backend : kBackends) {
    const LocalJob job(3);
    const auto errors = on_threads(job.size(), [&](int rank) {
      collective::ProcessGroup group({.resolver = resolver_of(job, rank), .backend = backend});
      collective::barrier(group);
      if (rank == kLate) return;
      const Error error = error_of([&] { collective::all_reduce(group, Tensor::scalar(1.0f)); });
      EXPECT_EQ(error.code(), Code::kInvalidArgument) << error.what();
      EXPECT_THAT(error.message(), AllOf(HasSubstr("an all-reduce"), HasSubstr("a barrier")));
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  }
}

TEST(LateWorkerTest, IsNamedBetweenTheStepsOfAStrategy) {
  for (const CommunicationBackend backend : kBackends) {
    const LocalJob job(2);
    std::latch named(1);
    const auto errors = on_threads(job.size(), [&](int rank) {
      MultiWorkerMirroredStrategy strategy({.resolver = resolver_of(job, rank),
                                            .devices = {"cpu:0"},
                                            .backend = backend,
                                            .worker_timeout = kLimit});
      if (rank == kLate) return named.wait();
      const Error error =
          error_of([&] { strategy.reduce("sum", PerReplica<Tensor>{Tensor::scalar(1.0f)}); });
      named.count_down();
      expect_named(error, "a reduce by sum: ");
    });
    EXPECT_THAT(errors, ::testing::Each(""));
  }
}

// Before the step, which nobody has begun, and by values of one.
TEST(LateWorkerTest, IsNamedByTheTimeOutOfSteps) {
  const auto step = [](Strategy& strategy) {
    strategy.run(strategy.function([](Value x) { return x * 2.0; }), 1.0f);
  };
  const std::pair<std::string, std::function<void(Strategy&)>> calls[] = {
      {"step 0 of ", step},
      {"a reduce by sum", [](Strategy& strategy) { strategy.reduce("sum", Tensor::scalar(1.0f)); }},
      {"a gather along axis 0", [](Strategy& strategy) {
         strategy.gather(PerReplica<Tensor>{Tensor::full(DType::kFloat32, {2}, 1)}, 0);
       }}};
  for (const CommunicationBackend backend : kBackends)
    for (const auto& called : calls) {  // its words, and the call
      const LocalJob job(3);
      std::latch named(job.size() - 1);
      const auto errors = on_threads(job.size(), [&](int rank) {
        MultiWorkerMirroredStrategy strategy({.resolver = resolver_of(job, rank),
                                              .devices = {"cpu:0"},
                                              .communication = {.timeout_seconds = 1.0},
                                              .backend = backend});
        if (rank == kLate) return named.wait();
        const Error error = error_of([&] { called.second(strategy); });
        named.count_down();
        EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
        EXPECT_EQ(error.peer(), "worker:1") << error.what();
        EXPECT_THAT(error.message(), AllOf(HasSubstr(called.first),
                                           HasSubstr(" has waited for worker:1 for longer than "
                                                     "1000 ms (CommunicationOptions::timeout_"
                                                     "seconds)")));
      });
      EXPECT_THAT(errors, ::testing::Each(""));
    }
}

TEST(LateWorkerTest, IsWaitedForBetweenStepsWhateverTheTimeOutOfSteps) {
  const LocalJob job(2);
  const auto errors = on_threads(job.size(), [&](int rank) {
    MultiWorkerMirroredStrategy strategy({.resolver = resolver_of(job, rank),
                                          .devices = {"cpu:0"},
                                          .communication = {.timeout_seconds = 0.1}});
    from_chief(strategy.workers(), "a slow save", [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return std::string();
    });
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

// A replica that comes to its first collective when the other has given it up.
class LateCommunicator final : public ForwardingCommunicator {
 public:
  LateCommunicator(std::unique_ptr<Communicator> inner, std::latch& given_up)
      : ForwardingCommunicator(std::move(inner)), given_up_(given_up) {}
  void run(const Call& call) override {
    if (rank() == kLate) given_up_.wait();
    try {
      inner().run(call);
    } catch (const Error&) {
      if (rank() != kLate) given_up_.count_down();
      throw;
    }
  }

 private:
  std::latch& given_up_;
};

// A step of one reduction, and how messages call it.
struct Reduction {
  std::function<Value(const ReplicaContext& replica, const Value& x)> make;
  std::string words;
};
const Reduction kReductions[] = {
    {[](const auto& replica, const auto& x) { return replica.all_reduce(ReduceOp::kSum, x); },
     "an all-reduce (sum) of 1 "},
    {[](const auto& replica, const auto& x) {
       return replica.all_reduce(ReduceOp::kSum, std::vector{x, x * 2.0})[1];
     },
     "an all-reduce (sum) of 2 "},
    {[](const auto& replica, const auto& x) {
       const Value row = ops::constant(Tensor::from<int32_t>({2}, {1}));
       return replica.all_reduce(ReduceOp::kSum, Gradient{ops::reshape(x, {1, 1}), row, 5}).values;
     },
     "an all-gather of "}};

void expect_late_replica_named(const Reduction& reduction, CommunicationBackend backend) {
  const LocalJob job(2);
  std::latch given_up(1);
  const auto errors = on_threads(job.size(), [&](int rank) {
    MultiWorkerMirroredStrategy strategy(
        {.devices = {"cpu:0"},
         .communication = {.timeout_seconds = 1.0},
         .link = std::make_shared<ChangedLink>(
             join_cluster(*resolver_of(job, rank), {}, backend), [&](auto inner) {
               return std::make_unique<LateCommunicator>(std::move(inner), given_up);
             })});
    const auto step =
        strategy.function([&](Value x) { return reduction.make(*get_replica_context(), x); });
    const Error error = error_of([&] { strategy.run(step, 1.0f); });
    // Who is late may find all that it needs, and hears later.
    if (rank != kLate) expect_named(error, reduction.words);
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

// Of one value, of several at once, and of rows.
TEST(LateWorkerTest, IsNamedWithinAStepOfAStrategy) {
  for (const CommunicationBackend backend : kBackends)
    for (const Reduction& reduction : kReductions) {
      SCOPED_TRACE(reduction.words);
      expect_late_replica_named(reduction, backend);
    }
}

}  // namespace
}  // namespace cohort::testing
