// What a supervisor does at every restart, more often than the pauses between restarts would allow.
#include <filesystem>

#include <gtest/gtest.h>

#include "core/base/temporary_folder.h"
#include "strategies/cluster/launcher/attempt.h"
#include "strategies/cluster/launcher/descendants.h"
#include "strategies/cluster/launcher/pipe.h"
#include "strategies/cluster/launcher/supervisor.h"
#include "tests/testing/resources.h"

namespace cohort::launcher {
namespace {

using cohort::testing::Resources;
using cohort::testing::resources_of;

// The supervisor of a shell.
class Supervision {
 public:
  explicit Supervision(Options options) : options_(std::move(options)) {}

  const Setting& setting() const { return setting_; }
  void flush() const {
    launcher::flush(options_, console_, signal_queue_, lifeline_.read_end, std::nullopt);
  }

 private:
  const Options options_;
  const net::InternetAddress loopback_;
  const NodePorts ports_{options_, loopback_};
  const LocalCluster cluster_{
      options_, ports_, {.job_id = "job", .nodes = {ports_.describe(loopback_.host())}}};
  const std::string program_ = "/bin/sh";
  const Environment environment_ = Environment::current();
  const Signals signals_;
  const net::Descriptor signal_queue_ = signals_.queue();
  const Pipe lifeline_ = make_pipe();
  Console console_;
  const Setting setting_ = {options_, cluster_,      program_,           environment_,
                            signals_, signal_queue_, lifeline_.read_end, console_};
};

// Where one of them cannot be started, as here its log cannot be written.
TEST(Attempt, EndsTheTasksThatItHasStartedWhereItCannotStartAll) {
  const TemporaryFolder folder("launcher");
  std::filesystem::create_directories(folder.path() + "/attempt-0/worker-1.stdout");
  const Supervision supervision(
      {.workers = 2, .log_dir = folder.path(), .command = {"sh", "-c", "kill -STOP $$"}});
  EXPECT_THROW(Attempt(supervision.setting(), 0), Error);
  EXPECT_TRUE(children().empty());
}

TEST(Restarts, AHundredOfThemLeaveNothingBehind) {
  constexpr int kRestarts = 100;
  const Supervision supervision(
      {.workers = 2,
       .ps = 1,
       .restarts = kRestarts,
       .command = {"sh", "-c", "echo attempt $COHORT_RESTART_COUNT; exit 3"}});
  const auto fail_and_restart = [&](int restart) {
    Attempt attempt(supervision.setting(), restart);
    attempt.run();
    ASSERT_TRUE(attempt.failed());
    EXPECT_EQ(attempt.tasks()[*attempt.failed()].status.code(), 3);
    supervision.flush();
  };
  Resources before;
  for (int restart = 0; restart <= kRestarts; ++restart) {
    fail_and_restart(restart);
    if (restart == 10) before = resources_of();
  }
  const Resources after = resources_of();
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.threads, before.threads);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LE(after.resident_bytes, before.resident_bytes + (256 << 10)) << before << "; " << after;
#endif
}

}  // namespace
}  // namespace cohort::launcher
