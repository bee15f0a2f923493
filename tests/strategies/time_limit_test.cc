#include "strategies/cross_device/time_limit.h"

#include <cmath>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "core/collective/forwarding_communicator.h"
#include "strategies/central_storage_strategy.h"
#include "strategies/mirrored_strategy.h"

namespace cohort {
namespace {

using std::chrono::milliseconds;

std::vector<std::unique_ptr<Communicator>> make_group(int size, milliseconds limit) {
  std::vector<std::string> names;
  for (int r = 0; r < size; ++r) names.push_back(str("replica ", r));
  return with_time_limit(make_in_process_communicators(size), limit, names);
}

Code code_of(const std::function<void()>& call, std::string* message = nullptr) {
  try {
    call();
  } catch (const Error& error) {
    if (message != nullptr) *message = error.message();
    return error.code();
  }
  return Code::kUnknown;
}

float add_one(Communicator& communicator) {
  float value = 1;
  const Segment segment{&value, &value, 1};
  communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  return value;
}

TEST(TimeLimitTest, OneThatWaitsTooLongEndsTheGroup) {
  const auto group = make_group(2, milliseconds(10));
  std::string message;
  EXPECT_EQ(code_of([&] { add_one(*group[0]); }, &message), Code::kDeadlineExceeded);
  EXPECT_EQ(message, "replica 0 has waited for 0.01 s in AllReduce for replica 1");
  EXPECT_EQ(code_of([&] { group[1]->barrier(); }), Code::kDeadlineExceeded)
      << "the one that comes late hears of it";
}

TEST(TimeLimitTest, ThoseThatDoNotComeToAPartAreNamedAsInTheWhole) {
  const auto group = make_group(4, milliseconds(1000));
  std::vector<std::unique_ptr<Communicator>> odd(2);
  std::vector<std::thread> threads;
  for (const auto& rank : group)
    threads.emplace_back([&] {
      auto part = rank->split(rank->rank() % 2);
      if (rank->rank() % 2 == 1) odd[static_cast<size_t>(part->rank())] = std::move(part);
    });
  for (auto& thread : threads) thread.join();
  std::string message;
  EXPECT_EQ(code_of([&] { odd[1]->barrier(); }, &message), Code::kDeadlineExceeded);
  EXPECT_EQ(message, "replica 3 has waited for 1 s in Barrier for replica 1");
}

TEST(TimeLimitTest, EveryKindOfCallIsLimited) {
  float x = 0, both[2];
  const int64_t bytes[] = {4, 4};
  const std::function<void(Communicator&)> calls[] = {
      [&](Communicator& c) { c.all_gather(&x, both, bytes); },
      [&](Communicator& c) { c.broadcast(&x, &x, 4, 1); }, [&](Communicator& c) { c.barrier(); },
      [&](Communicator& c) {
        const Segment segment{&x, &x, 1};
        c.wait(c.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum));
      }};
  for (const auto& call : calls) {
    const auto group = make_group(2, milliseconds(10));
    EXPECT_EQ(code_of([&] { call(*group[0]); }), Code::kDeadlineExceeded);
  }
}

TEST(TimeLimitTest, WhoDoesNotSendOrTakeAMessageIsNamed) {
  float x = 0;
  const std::function<void(Communicator&)> calls[] = {[&](Communicator& c) { c.send(&x, 4, 2); },
                                                      [&](Communicator& c) { c.receive(&x, 4, 2); },
                                                      [&](Communicator& c) { c.receive(&x, 4); }};
  const std::string peers[] = {"replica 2", "replica 2", "the others"};
  for (size_t i = 0; i < 3; ++i) {
    const auto group = make_group(3, milliseconds(10));
    std::string message;
    EXPECT_EQ(code_of([&] { calls[i](*group[0]); }, &message), Code::kDeadlineExceeded);
    EXPECT_EQ(message, "replica 0 has waited for 0.01 s in a message for " + peers[i]);
  }
}

// The longest limits are as good as none.
TEST(TimeLimitTest, RanksThatMeetAreLeftAlone) {
  const CommunicationOptions endless{.timeout_seconds = INFINITY},
      long_one{.timeout_seconds = 1e10};
  for (const milliseconds limit : {milliseconds(std::chrono::hours(1)), *endless.limit(),
                                   *long_one.limit(), milliseconds::max()}) {
    const auto group = make_group(3, limit);
    std::vector<std::thread> threads;
    for (const auto& rank : group)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) EXPECT_EQ(add_one(*rank), 3);
      });
    for (auto& thread : threads) thread.join();
  }
}

// A communicator of rank 1 that takes no part until its group is ended.
class Absent final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  void run(const Call& call) override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return is_ended_; });
    inner().run(call);
  }
  void abort(const Error& error) override {
    inner().abort(error);
    {
      const std::lock_guard lock(mutex_);
      is_ended_ = true;
    }
    ended_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool is_ended_ = false;
};

class OneIsAbsentAtFirst final : public CrossDeviceOps {
 public:
  std::string name() const override { return "OneIsAbsentAtFirst"; }
  std::vector<std::unique_ptr<Communicator>> make_communicators(
      const std::vector<Device>& devices) override {
    auto group = make_in_process_communicators(static_cast<int>(devices.size()));
    if (groups++ == 0) group[1] = std::make_unique<Absent>(std::move(group[1]));
    return group;
  }

  int groups = 0;
};

TEST(TimeLimitTest, AStepWhoseReplicasDoNotMeetIsEndedAndTheNextOneRunsInANewGroup) {
  set_logical_cpus(3, 1);
  const CommunicationOptions communication = {.timeout_seconds = 0.5};
  for (const bool central : {false, true}) {
    const auto ops = std::make_shared<OneIsAbsentAtFirst>();
    std::unique_ptr<Strategy> strategy;
    if (central)
      strategy = std::make_unique<CentralStorageStrategy>(
          CentralStorageStrategy::Options{.cross_device_ops = ops, .communication = communication});
    else
      strategy = std::make_unique<MirroredStrategy>(
          MirroredStrategy::Options{.cross_device_ops = ops, .communication = communication});
    SCOPED_TRACE(strategy->name());
    const auto step = strategy->function(
        [](Value x) { return get_replica_context()->all_reduce(ReduceOp::kSum, x); });
    std::string message;
    EXPECT_EQ(code_of([&] { strategy->run(step, 1.0f); }, &message), Code::kDeadlineExceeded);
    EXPECT_NE(message.find("has waited for 0.5 s in AllReduce"), std::string::npos) << message;
    for (const Tensor& sum : strategy->run(step, 1.0f)) EXPECT_EQ(sum.item(), 3);
    EXPECT_EQ(ops->groups, 2);
  }
  set_logical_cpus(1);
}

}  // namespace
}  // namespace cohort
