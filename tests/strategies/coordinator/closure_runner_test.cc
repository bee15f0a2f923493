// A worker's thread, without a network.
#include "strategies/coordinator/closure_runner.h"

#include <atomic>
#include <vector>

#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

using namespace coordinator;

// Those to Fetch are counted.
class Answers final : public ClosureRunner::Answers {
 public:
  void send(const FromWorker& message) override { results_ += message.results.size(); }
  bool is_drained() const override { return true; }
  size_t results() const { return results_; }

 private:
  std::atomic<size_t> results_ = 0;
};

// What is summed over replicas is set by a function, which a cancelled thread does not finish.
TEST(ClosureRunner, MayBeStoppedWhileItForgets) {
  constexpr int kStops = 20, kForgets = 1000;
  constexpr size_t kMaxBytes = 1 << 20;
  for (int i = 0; i < kStops; ++i) {
    Answers answers;
    std::atomic<uint64_t> executed = 0;
    ClosureRunner runner(Attach{.job_id = "job", .task = "chief:0", .worker = "worker:0"},
                         {Device{}}, kMaxBytes, nullptr, answers, executed);
    std::vector<Command> commands{
        Create{.resource = 1,
               .what = CreateVariable{.name = "sum",
                                      .value = floats({0, 0}),
                                      .synchronization = Synchronization::kOnRead,
                                      .aggregation = Aggregation::kSum,
                                      .kept = KeptApart::kSum}},
        Forget{}, Fetch{.id = 1, .resource = 1}};
    for (int n = 0; n < kForgets; ++n) commands.emplace_back(Forget{});
    runner.take(std::move(commands));
    ASSERT_TRUE(eventually([&] { return answers.results() > 0; }));
    runner.stop();
    EXPECT_TRUE(eventually([&] { return runner.has_ended(); }));
  }
}

}  // namespace
}  // namespace cohort::testing
