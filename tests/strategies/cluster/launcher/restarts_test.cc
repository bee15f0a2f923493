// What a supervisor does at every restart, more often than the pauses between restarts would allow.
#include <gtest/gtest.h>

#include "strategies/cluster/launcher/attempt.h"
#include "strategies/cluster/launcher/pipe.h"
#include "strategies/cluster/launcher/supervisor.h"
#include "tests/testing/resources.h"

namespace cohort::launcher {
namespace {

using cohort::testing::Resources;
using cohort::testing::resources_of;

TEST(Restarts, AHundredOfThemLeaveNothingBehind) {
  const Options options{.workers = 2,
                        .ps = 1,
                        .restarts = 100,
                        .command = {"sh", "-c", "echo attempt $COHORT_RESTART_COUNT; exit 3"}};
  const net::InternetAddress loopback;
  const NodePorts ports(options, loopback);
  const LocalCluster cluster(options, ports,
                             {.job_id = "job", .nodes = {ports.describe(loopback.host())}});
  const std::string program = "/bin/sh";
  const Environment environment = Environment::current();
  const Signals signals;
  const net::Descriptor signal_queue = signals.queue();
  const Pipe lifeline = make_pipe();
  Console console;
  const Setting setting = {options, cluster,      program,           environment,
                           signals, signal_queue, lifeline.read_end, console};
  const auto fail_and_restart = [&](int restart) {
    Attempt attempt(setting, restart);
    attempt.run();
    ASSERT_TRUE(attempt.failed());
    EXPECT_EQ(attempt.tasks()[*attempt.failed()].status.code(), 3);
    flush(console, signal_queue, lifeline.read_end);
  };
  Resources before;
  for (int restart = 0; restart <= options.restarts; ++restart) {
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
