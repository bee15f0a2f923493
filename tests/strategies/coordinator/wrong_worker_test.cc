// A worker that is none of ours, and what becomes of a coordinator that it answers.
#include <atomic>
#include <optional>
#include <variant>

#include "tests/strategies/coordinator/fake_worker.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

using coordinator::Command;
using coordinator::FromWorker;
using coordinator::ToWorker;

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

}  // namespace
}  // namespace cohort::testing
