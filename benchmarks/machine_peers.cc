#include "benchmarks/machine_peers.h"

#include <cstdio>

#include "core/base/error.h"

namespace cohort::benchmarks {

double MemoryPeer::run(int threads) const {
  const std::string command = str(program_.command(), " ", threads);
  double copied = 0, added = 0;
  for (const std::string& line : lines_of(command)) {
    std::fputs(line.c_str(), stdout);
    std::sscanf(line.c_str(), "memory threads=%*d copy_GBs=%lf add_GBs=%lf", &copied, &added);
  }
  if (added <= 0) fail(Code::kUnavailable, "the peer memory printed no result: ", command);
  return added;
}

SocketBandwidth SocketPeer::run(int64_t bytes, int64_t repetitions) const {
  const std::string command = str(program_.command(), " ", bytes, " ", repetitions);
  SocketBandwidth found;
  for (const std::string& line : lines_of(command)) {
    std::fputs(line.c_str(), stdout);
    std::sscanf(line.c_str(), "socket bytes=%*d one_way_GBs=%lf both_ways_GBs=%lf", &found.one_way,
                &found.both_ways);
  }
  if (found.both_ways <= 0)
    fail(Code::kUnavailable, "the peer socket printed no result: ", command);
  return found;
}

}  // namespace cohort::benchmarks
