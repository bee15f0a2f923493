#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "tests/strategies/collective/processes.h"

// Where the system does not let the processes of a host share memory.
namespace cohort::testing {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// All goes well over `connection`, and one process warns with `reason`.
void expect_fallback(const Processes::Options& options, const std::string& connection,
                     const std::string& reason) {
  Processes group(options);
  size_t warnings = 0;
  for (int p = 0; p < options.processes; ++p) {
    EXPECT_EQ(group.wait(p), 0) << group.output(p);
    const std::string output = group.output(p);
    EXPECT_NE(output.find("connected by " + connection + "\n"), std::string::npos) << output;
    EXPECT_NE(output.find(" cannot share memory: "), std::string::npos) << output;
    warnings += count(output, "warning: processes of this host cannot share memory and use TCP");
    if (output.find("warning") != std::string::npos) {
      EXPECT_NE(output.find(reason), std::string::npos) << output;
    }
  }
  EXPECT_EQ(warnings, 1u);
}

TEST(DeniedMemoryTest, ProcessesThatCannotMakeItUseTcp) {
  expect_fallback({.scenario = "background", .processes = 3, .hosts = "000", .denial = "memory"},
                  "TCP", "File too large");
  expect_fallback({.scenario = "background", .processes = 4, .hosts = "0011", .denial = "memory"},
                  "TCP", "File too large");
}

TEST(DeniedMemoryTest, ProcessesThatMayNotMapItUseTcp) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  expect_fallback({.scenario = "background",
                   .processes = 2,
                   .hosts = "00",
                   .denial = "rights",
                   .denied_process = 1},
                  "TCP", "Permission denied");
}

TEST(DeniedMemoryTest, OtherHostsGoOnSharingIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  expect_fallback({.scenario = "messages",
                   .processes = 4,
                   .hosts = "0011",
                   .denial = "rights",
                   .denied_process = 3},
                  "shared memory within hosts, TCP between them", "Permission denied");
}

TEST(DeniedMemoryTest, ThreadsOfAProcessGoOnSharingIt) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has rights to give up";
  expect_fallback({.scenario = "messages",
                   .processes = 2,
                   .ranks_per_process = 2,
                   .hosts = "00",
                   .denial = "rights",
                   .denied_process = 1},
                  "shared memory within hosts, TCP between them", "Permission denied");
}

}  // namespace
}  // namespace cohort::testing
