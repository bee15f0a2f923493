#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/temporary_folder.h"

namespace cohort::benchmarks {

// All-reduces of another library, by a program of benchmarks/peers that is built for the occasion.
class AllReducePeer {
 public:
  // `name` is one of names(); `sources` is the folder of the programs. kUnavailable when it cannot
  // be built, saying which packages it needs.
  AllReducePeer(const std::string& name, const std::string& sources);

  static std::vector<std::string> names();
  const std::string& name() const { return name_; }
  // Runs the program once: its median microseconds by size in bytes.
  std::map<int64_t, double> run(int ranks, const std::vector<int64_t>& sizes);

 private:
  const std::string name_;
  const TemporaryFolder folder_{"peer"};
  int runs_ = 0;
};

}  // namespace cohort::benchmarks
