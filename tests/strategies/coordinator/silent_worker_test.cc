// A worker that is there, and answers nothing that it is asked: whatever waits for it ends all the
// same.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "core/base/program.h"
#include "tests/strategies/coordinator/fake_worker.h"
#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

class SilentWorker {
 public:
  std::string address() const { return worker_.address(); }
  // That it was given so far.
  int closures() const { return closures_; }
  int questions() const { return questions_; }

 private:
  void count(const coordinator::ToWorker& message) {
    for (const coordinator::Command& command : message.commands) {
      if (std::holds_alternative<coordinator::Run>(command)) ++closures_;
      if (std::holds_alternative<coordinator::AskStatus>(command)) ++questions_;
    }
  }

  std::atomic<int> closures_ = 0, questions_ = 0;
  FakeWorker worker_{[this](const coordinator::ToWorker& message) {
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

}  // namespace
}  // namespace cohort::testing
