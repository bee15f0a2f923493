// When a worker's server ends, and which task it is.
#include <thread>

#include "tests/strategies/coordinator/testing.h"

namespace cohort::testing {
namespace {

TEST(WorkerServer, EndsWhenItHasBeenLeftAlone) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.job_id = "job",
                       .orphaned_after = milliseconds(50),
                       .unclaimed_after = milliseconds(0),
                       .notice = lines.writer()},
                      no_environment);
  std::thread waiting([&] { server.wait(); });
  {
    ClusterCoordinator coordinator(ClusterSpec(ClusterSpec::Jobs{{"worker", {port.address()}}}),
                                   {.job_id = "job", .notice = lines.writer()}, no_environment);
    coordinator.wait_for_workers();
    EXPECT_FALSE(lines.has("ending"));
  }
  waiting.join();
  EXPECT_TRUE(lines.has("no coordinator for 50 ms; ending"));
}

TEST(WorkerServer, EndsWhenNobodyHasEverCome) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer server(Address::parse(port.address()),
                      {.unclaimed_after = milliseconds(20), .notice = lines.writer()},
                      no_environment);
  server.wait();
  EXPECT_TRUE(lines.has("since the start"));
}

TEST(WorkerServer, IsTheTaskThatTheEnvironmentSays) {
  EXPECT_FALSE(run_worker_server({}, no_environment)) << "a program on its own";
  const launcher::ReservedPort port;
  // Whether that task has served, until it found that nobody came.
  const auto serves = [&](const std::string& chief, const std::string& type, int index) {
    const std::string config =
        str(R"({"cluster": {)", chief, R"("ps": ["127.0.0.1:3"], "worker": ["127.0.0.1:2", ")",
            port.address(), R"("]}, "task": {"type": ")", type, R"(", "index": )", index, "}}");
    return run_worker_server(
        {.unclaimed_after = milliseconds(20), .notice = [](const std::string&) {}},
        [&](const std::string& name) -> std::optional<std::string> {
          if (name == "TF_CONFIG") return config;
          return std::nullopt;
        });
  };
  const std::string chief = R"("chief": ["127.0.0.1:1"], )";
  for (const std::string& beside : {std::string(), chief}) {
    EXPECT_TRUE(serves(beside, "worker", 1));
    EXPECT_FALSE(serves(beside, "ps", 0));
    EXPECT_FALSE(serves(beside, "evaluator", 0));
  }
  EXPECT_FALSE(serves(chief, "chief", 0));
  EXPECT_FALSE(serves("", "worker", 0)) << "the chief of a cluster that has no other";
}

}  // namespace
}  // namespace cohort::testing
