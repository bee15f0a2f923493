#pragma once

#include <cstdint>
#include <string>

#include "benchmarks/peer_program.h"

namespace cohort::benchmarks {

// The names of these among those of PeerProgram.
inline constexpr const char *kMemoryPeer = "memory", *kSocketPeer = "socket";

// What the memory allows those who add arrays, as an all-reduce does.
class MemoryPeer {
 public:
  explicit MemoryPeer(const std::string& sources) : program_(kMemoryPeer, sources) {}

  // Runs the program once and prints its line: the gigabytes that `threads` threads add in a
  // second, of what they write.
  double run(int threads) const;

 private:
  const PeerProgram program_;
};

// Gigabytes a second that one process sends to another.
struct SocketBandwidth {
  double one_way = 0;
  double both_ways = 0;  // each of the two, when both send at once
};

// What TCP over loopback allows two processes that do nothing but send by one connection.
class SocketPeer {
 public:
  explicit SocketPeer(const std::string& sources) : program_(kSocketPeer, sources) {}

  // Runs the program once and prints its line: medians of so many times `bytes`, of which there is
  // at least one.
  SocketBandwidth run(int64_t bytes, int64_t repetitions) const;

 private:
  const PeerProgram program_;
};

}  // namespace cohort::benchmarks
