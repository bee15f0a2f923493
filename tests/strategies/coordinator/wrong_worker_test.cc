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

// 7 for each closure, and the result of one that there is not.
std::optional<FromWorker> with_one_result_more(const ToWorker& message) {
  FromWorker answer;
  for (const Command& command : message.commands)
    if (const auto* run = std::get_if<coordinator::Run>(&command))
      answer.results.push_back({.id = run->id, .error = {}, .values = {Tensor::scalar(7.0f)}});
  if (!answer.results.empty())
    answer.results.push_back({.id = kUnknownResult, .error = {}, .values = {}});
  return answer;
}

TEST(WrongWorker, AResultOfNoClosureEndsTheCallAndTheOthersCount) {
  Lines lines;
  const FakeWorker worker(with_one_result_more);
  const ClusterSpec cluster(ClusterSpec::Jobs{{"worker", {worker.address()}}});
  ClusterCoordinator coordinator(cluster, {.job_id = "job", .notice = lines.writer()},
                                 no_environment);
  const RemoteValue value = coordinator.schedule(doubled(), 1.0f);
  coordinator.join(kPatience);
  EXPECT_EQ(value.get(kPatience).item(), 7);
  EXPECT_TRUE(eventually([&] { return lines.has(str("a result with number ", kUnknownResult)); }));
  EXPECT_EQ(coordinator.statistics().executed, 1u);
  EXPECT_EQ(coordinator.statistics().in_flight, 0u);
}

TEST(WrongWorker, ACountThatItsFunctionDoesNotHaveEndsTheCall) {
  std::atomic<int> runs = 0;
  const FakeWorker worker([&](const ToWorker& message) -> std::optional<FromWorker> {
    FromWorker answer;
    for (const Command& command : message.commands) {
      const auto* run = std::get_if<coordinator::Run>(&command);
      if (run == nullptr) continue;
      coordinator::Result& result = answer.results.emplace_back();
      result.id = run->id;
      result.values = {Tensor::scalar(7.0f)};
      if (++runs == 1) result.counts = {{5, true}};
    }
    return answer;
  });
  Lines lines;
  const ClusterSpec cluster(ClusterSpec::Jobs{{"worker", {worker.address()}}});
  ClusterCoordinator coordinator(cluster, {.job_id = "job", .notice = lines.writer()},
                                 no_environment);
  const RemoteValue value = coordinator.schedule(doubled(), 1.0f);
  coordinator.join(kPatience);
  EXPECT_EQ(value.get(kPatience).item(), 7);
  EXPECT_EQ(runs, 2) << "it is executed again";
  EXPECT_TRUE(lines.has("a result of \"doubled\" with a count 5, which"));
  EXPECT_EQ(coordinator.statistics().executed, 1u);
}

}  // namespace
}  // namespace cohort::testing
