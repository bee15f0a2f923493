#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/peer_program.h"

namespace cohort::benchmarks {

// All-reduces of another library.
class AllReducePeer {
 public:
  // `name` is one of PeerProgram::names(), but of none in machine_peers.h.
  AllReducePeer(const std::string& name, const std::string& sources) : program_(name, sources) {}

  const std::string& name() const { return program_.name(); }
  // Runs the program once: its median microseconds by size in bytes.
  std::map<int64_t, double> run(int ranks, const std::vector<int64_t>& sizes);

 private:
  const PeerProgram program_;
  int runs_ = 0;
};

}  // namespace cohort::benchmarks
