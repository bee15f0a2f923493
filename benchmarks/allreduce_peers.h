#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/temporary_folder.h"

namespace cohort::benchmarks {

// A program of benchmarks/peers that is built for the occasion.
class PeerProgram {
 public:
  // `name` is one of names(); `sources` is the folder of the programs. kUnavailable when it cannot
  // be built, saying which packages it needs.
  PeerProgram(const std::string& name, const std::string& sources);

  static std::vector<std::string> names();
  const std::string& name() const { return name_; }
  // Where it is, quoted for a shell, and a folder that goes with it.
  std::string command() const;
  const std::string& folder() const { return folder_.path(); }

 private:
  const std::string name_;
  const TemporaryFolder folder_{"peer"};
};

// All-reduces of another library.
class AllReducePeer {
 public:
  // `name` is one of PeerProgram::names(), but kMemoryPeer.
  AllReducePeer(const std::string& name, const std::string& sources) : program_(name, sources) {}

  const std::string& name() const { return program_.name(); }
  // Runs the program once: its median microseconds by size in bytes.
  std::map<int64_t, double> run(int ranks, const std::vector<int64_t>& sizes);

 private:
  const PeerProgram program_;
  int runs_ = 0;
};

inline constexpr const char* kMemoryPeer = "memory";

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

}  // namespace cohort::benchmarks
