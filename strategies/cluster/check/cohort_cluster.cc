// cohort-cluster: what a process started here would know of its cluster.

#include <chrono>
#include <functional>
#include <iostream>
#include <string>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/flags.h"
#include "core/base/program.h"
#include "core/base/version.h"
#include "strategies/cluster/check/cluster_check.h"

namespace {

constexpr const char* kUsage =
    "cohort-cluster check [--timeout=SECONDS] [--json], or cohort-cluster --version";

// Ends with an error when this task could not take part, or somebody could not be reached.
void check(int argc, char** argv) {
  cohort::Flags flags(argc, argv,
                      "Prints which cluster the environment describes, where each fact of it was "
                      "read, whether this task may take part, and who can be reached now.");
  const double timeout = flags.number("timeout", 3, "seconds to wait for each task; 0 tries nobody",
                                      {.min = 0, .max = 3600});
  const bool json = flags.boolean("json", false, "print JSON instead of tables");
  flags.finish();
  const auto result = cohort::check_cluster(
      cohort::resolve_cluster(), std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000)));
  std::cout << (json ? result.json() + "\n" : result.table()) << std::flush;
  if (result.refusal) throw *result.refusal;
  const auto missing = result.unreachable();
  if (missing.empty()) return;
  constexpr size_t kShown = 8;
  cohort::fail(
      cohort::Code::kUnavailable, missing.size(), " of ", result.peers.size(),
      " tasks cannot be reached: ", cohort::comma_separated(missing, std::identity(), kShown));
}

}  // namespace

int main(int argc, char** argv) {
  return cohort::run_main([&] {
    const std::string command = argc > 1 ? argv[1] : "";
    if (command == "--help" || command == "-h") {
      std::cout << "Usage: " << kUsage << "\n";
      return;
    }
    if (command == "--version") {
      std::cout << "cohort-cluster " << COHORT_VERSION << "\n";
      return;
    }
    if (command != "check") {
      cohort::invalid(command.empty() ? "no command" : "unknown command \"" + command + "\"",
                      "; usage: ", kUsage);
    }
    std::string program = cohort::str(argv[0], " check");  // for --help
    argv[1] = program.data();
    check(argc - 1, argv + 1);
  });
}
