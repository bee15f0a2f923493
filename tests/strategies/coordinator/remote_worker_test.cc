// A coordinator's dealings with a worker that a test plays: one that answers nothing, so that
// whatever waits for it ends all the same, one that is none of ours, and one that is told to stop.
#include "strategies/coordinator/remote_worker.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/program.h"
#include "tests/strategies/coordinator/fake_worker.h"
#include "tests/strategies/coordinator/testing.h"
#include "tests/testing/gate.h"

namespace cohort::testing {
namespace {

using coordinator::Closure;
using coordinator::ClosurePtr;
using coordinator::ClosureQueue;
using coordinator::Command;
using coordinator::Definition;
using coordinator::FromWorker;
using coordinator::FunctionFamily;
using coordinator::RemoteResult;
using coordinator::RemoteWorker;
using coordinator::ResourceTable;
using coordinator::ToWorker;

// --- It answers nothing

class SilentWorker {
 public:
  std::string address() const { return worker_.address(); }
  // That it was given so far.
  int closures() const { return closures_; }
  int questions() const { return questions_; }

 private:
  void count(const ToWorker& message) {
    for (const Command& command : message.commands) {
      if (std::holds_alternative<coordinator::Run>(command)) ++closures_;
      if (std::holds_alternative<coordinator::AskStatus>(command)) ++questions_;
    }
  }

  std::atomic<int> closures_ = 0, questions_ = 0;
  FakeWorker worker_{[this](const ToWorker& message) {
    count(message);
    return std::nullopt;
  }};  // last: its calls use the others
};

// A worker that does its work, and a silent one.
class BesideASilentWorker : public ::testing::Test {
 protected:
  void connect(CoordinatorOptions options = {}) {
    options.job_id = "job";
    options.notice = cluster_.lines.writer();
    coordinator_ = std::make_unique<ClusterCoordinator>(
        ClusterSpec(
            ClusterSpec::Jobs{{"worker", {cluster_.address(0).text(), silent_->address()}}}),
        options, no_environment);
    coordinator_->wait_for_workers();
  }

  TestCluster cluster_{1};
  std::optional<SilentWorker> silent_{std::in_place};
  std::unique_ptr<ClusterCoordinator> coordinator_;
};

TEST_F(BesideASilentWorker, AnErrorWaitsAsLongAsItsTimeLimitSays) {
  connect({.stop_timeout = milliseconds(50)});
  const Function f = doubled();
  ASSERT_TRUE(eventually([&] {
    coordinator_->schedule(f, 1.0f);
    return silent_->closures() == 1;
  }));
  coordinator_->schedule(failing(), 0.0f);
  const auto in_flight = [&] { return coordinator_->statistics().in_flight; };
  ASSERT_TRUE(
      eventually([&] { return coordinator_->statistics().failed == 1 && in_flight() == 1; }));
  EXPECT_ERROR(coordinator_->done(), Code::kDeadlineExceeded,
               "1 in flight, and do not stop for the error of another");
  EXPECT_ERROR(coordinator_->schedule(f, 1.0f), Code::kDeadlineExceeded,
               "1 in flight, the oldest, \"doubled\"");
  EXPECT_ERROR(coordinator_->join(), Code::kDeadlineExceeded, "worker:1");
  silent_.reset();
  EXPECT_TRUE(eventually([&] { return in_flight() == 0; }));
  EXPECT_ERROR(coordinator_->done(), Code::kOutOfRange, "\"failing\"");
  EXPECT_EQ(coordinator_->schedule(f, 4.0f).get(kPatience).item(), 8);
  coordinator_->join(kPatience);
}

TEST_F(BesideASilentWorker, AnInterruptEndsTheWaitForItsAnswer) {
  connect();
  std::thread stopping([&] {
    EXPECT_TRUE(eventually([&] { return silent_->questions() > 0; }));
    request_stop(StopRequest::kInterrupt);
  });
  EXPECT_ERROR(coordinator_->worker_statuses(), Code::kCancelled, "interrupted");
  stopping.join();
  init();  // forgets it
}

TEST_F(BesideASilentWorker, ATimeLimitIsNotNegative) {
  EXPECT_ERROR(connect({.stop_timeout = milliseconds(-1)}), Code::kInvalidArgument,
               "stop_timeout is 0 at least, got -1 ms");
}

// --- It is none of ours

constexpr uint64_t kUnknownResult = 999'999;

// 7 for each closure.
FromWorker sevens(const ToWorker& message) {
  FromWorker answer;
  for (const Command& command : message.commands)
    if (const auto* run = std::get_if<coordinator::Run>(&command))
      answer.results.push_back({.id = run->id, .error = {}, .values = {Tensor::scalar(7.0f)}});
  return answer;
}

// And the result of one that there is not.
std::optional<FromWorker> with_one_result_more(const ToWorker& message) {
  FromWorker answer = sevens(message);
  if (!answer.results.empty())
    answer.results.push_back({.id = kUnknownResult, .error = {}, .values = {}});
  return answer;
}

// A coordinator that has one closure executed by the worker.
struct OneClosure {
  Lines lines;
  const ClusterSpec cluster;
  ClusterCoordinator coordinator;

  explicit OneClosure(const FakeWorker& worker)
      : cluster(ClusterSpec::Jobs{{"worker", {worker.address()}}}),
        coordinator(cluster, {.job_id = "job", .notice = lines.writer()}, no_environment) {
    const RemoteValue value = coordinator.schedule(doubled(), 1.0f);
    coordinator.join(kPatience);
    EXPECT_EQ(value.get(kPatience).item(), 7);
    EXPECT_EQ(coordinator.statistics().executed, 1u);
  }
};

TEST(WrongWorker, AResultOfNoClosureEndsTheCallAndTheOthersCount) {
  const FakeWorker worker(with_one_result_more);
  OneClosure job(worker);
  EXPECT_TRUE(
      eventually([&] { return job.lines.has(str("a result with number ", kUnknownResult)); }));
  EXPECT_EQ(job.coordinator.statistics().executed, 1u);
  EXPECT_EQ(job.coordinator.statistics().in_flight, 0u);
}

TEST(WrongWorker, ACountThatItsFunctionDoesNotHaveEndsTheCall) {
  std::atomic<int> runs = 0;
  const FakeWorker worker([&](const ToWorker& message) -> std::optional<FromWorker> {
    FromWorker answer = sevens(message);
    for (coordinator::Result& result : answer.results)
      if (++runs == 1) result.counts = {{5, true}};
    return answer;
  });
  OneClosure job(worker);
  EXPECT_EQ(runs, 2) << "it is executed again";
  EXPECT_TRUE(job.lines.has("a result of \"doubled\" with a count 5, which"));
}

// Tracing takes time, and what was traced stays.
TEST(WrongWorker, AFunctionThatNoClosureOfItsOwnNeedsEndsTheCall) {
  std::atomic<int> runs = 0;
  const FakeWorker worker([&](const ToWorker& message) -> std::optional<FromWorker> {
    FromWorker answer = sevens(message);
    for (const Command& command : message.commands) {
      const auto* run = std::get_if<coordinator::Run>(&command);
      if (run == nullptr || ++runs > 2) continue;
      answer.results.clear();
      // At first another one, then for one closure twice.
      if (runs == 2) answer.missing.push_back({.function = run->function, .signature = {}});
      answer.missing.push_back({.function = run->function + (runs == 1 ? 1 : 0), .signature = {}});
    }
    return answer;
  });
  OneClosure job(worker);
  EXPECT_EQ(runs, 3) << "it is executed again";
  EXPECT_TRUE(job.lines.has("it asks for function 2, which no closure that it was given needs"));
  EXPECT_TRUE(job.lines.has("it asks for function 1, which no closure that it was given needs"));
}

// --- It stops when it is told to

// It executes the first closure at once, and returns the others when they are cancelled.
class StoppingWorker {
 public:
  std::string address() const { return worker_.address(); }

 private:
  std::optional<FromWorker> answer(const ToWorker& message) {
    FromWorker answer;
    for (const Command& command : message.commands) {
      if (const auto* run = std::get_if<coordinator::Run>(&command)) {
        if (++runs_ == 1)
          answer.results.push_back({.id = run->id, .error = {}, .values = {}});
        else
          begun_.push_back(run->id);
      }
      if (!std::holds_alternative<coordinator::Cancel>(command)) continue;
      for (const uint64_t id : std::exchange(begun_, {}))
        answer.results.push_back({.id = id, .error = {}, .values = {}, .returned = true});
    }
    if (answer.results.empty()) return std::nullopt;
    return answer;
  }

  int runs_ = 0;
  std::vector<uint64_t> begun_;
  FakeWorker worker_{
      [this](const ToWorker& message) { return answer(message); }};  // last: uses both
};

class Remote : public ::testing::Test {
 protected:
  static ClosurePtr closure(size_t bytes = 0) {
    auto made = std::make_unique<Closure>();
    made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr, nullptr);
    made->result = std::make_shared<RemoteResult>();
    made->bytes = bytes;
    return made;
  }

  Lines lines_;
  Gate gate_;
  std::atomic<bool> cancelled_ = false;
  StoppingWorker there_;
  ClosureQueue queue_{ClosureQueue::Options{.capacity = 0,
                                            .max_attempts = 1,
                                            .put_timeout = kPatience,
                                            .stop_timeout = kPatience,
                                            .cancel =
                                                [this] {
                                                  worker_->cancel();
                                                  cancelled_ = true;
                                                },
                                            .who = [this] { return worker_->describe(); }}};
  const coordination::Security security_{{}, false, no_environment};
  ResourceTable resources_{1};
  coordinator::WorkerContext context_{.security = security_,
                                      .queue = queue_,
                                      .resources = resources_,
                                      .job_id = "job",
                                      .task = "chief:0",
                                      .compression = {},
                                      .max_message_bytes = 1 << 20,
                                      .notice = lines_.writer()};
  std::optional<RemoteWorker> worker_{std::in_place, context_, 0, "worker:0",
                                      Address::parse(there_.address())};
};

// An error that is thrown when the worker's closures have left the queue, and are not with it yet.
TEST_F(Remote, AnErrorStopsWhatIsOnItsWayToTheWorkerToo) {
  queue_.put(closure());
  queue_.join(kPatience);  // and it may be given several at a time
  gate_.close();
  const OpenInTheEnd guard(gate_);
  std::vector<ClosurePtr> both;
  both.push_back(closure(size_t{1} << 30));
  both.push_back(closure());
  // The first one is too large, which is the error, and then holds up the thread.
  both[0]->definition = std::shared_ptr<const Definition>(new Definition, [&](const Definition* d) {
    gate_.pass();
    delete d;
  });
  const auto stopped = both[1]->result;
  queue_.execute_again(std::move(both));
  ASSERT_TRUE(eventually([&] { return gate_.holds_somebody(); }));
  std::thread joining(
      [&] { EXPECT_ERROR(queue_.join(kPatience), Code::kResourceExhausted, "worker:0 takes"); });
  EXPECT_TRUE(eventually([&] { return cancelled_.load(); }));
  gate_.open();
  joining.join();
  EXPECT_ERROR(stopped->wait(milliseconds(0)), Code::kCancelled, "schedule it again");
}

}  // namespace
}  // namespace cohort::testing
