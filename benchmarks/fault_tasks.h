#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "strategies/cluster/cluster_spec.h"
#include "strategies/parameter_server/server_log.h"

// What the processes of a FaultJob do, each until SIGTERM. The model counts: each push adds 1 to
// every element of a variable that has a shard on each server, so that its value there is the
// number of pushes that were applied, or of updates where training is synchronous.
namespace cohort::benchmarks {

struct FaultJobOptions {
  int workers = 3, servers = 2;
  std::chrono::milliseconds pace{20};  // what the computation of a step takes
  std::optional<int> slow_worker;      // one that takes kSlowFactor times as long
  // As ParameterServerStrategy::Options has them.
  std::optional<int64_t> max_staleness;
  std::string snapshot_folder;
  std::chrono::milliseconds snapshot_interval{200};
  ServerLog log = ServerLog::kNone;
};
inline constexpr int kSlowFactor = 10;

// A server, and a worker, which says "step" after each push that was acknowledged. A step's
// computation is a sleep: on few cores, one that computes would leave its cores to the others when
// it is killed, and they would be the faster for it.
void serve(const FaultJobOptions& options, const ClusterSpec& cluster, int server);
void work(const FaultJobOptions& options, const ClusterSpec& cluster, int worker);

// How a server was when the observer asked it, by its ServerStatistics.
struct Sight {
  int server = 0;
  uint64_t epoch = 0, sessions = 0;  // 0: it did not answer
  bool operator==(const Sight&) const = default;
};
// Asks each server how it is, every few milliseconds, and says what has changed, which sight_in()
// reads.
void observe(const ClusterSpec& cluster);
Sight sight_in(const std::string& said);

// Says the counter's value on each server, "value SERVER NUMBER", and ends. For when all workers
// have ended. kDataLoss where a shard's elements differ.
void say_values(const FaultJobOptions& options, const ClusterSpec& cluster);

}  // namespace cohort::benchmarks
