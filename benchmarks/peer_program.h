#pragma once

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

// Where the sources are that come with the benchmark that was started as `argv0`.
std::string peer_sources(const char* argv0);

// What a shell's command prints, each line with its end. kUnavailable.
std::vector<std::string> lines_of(const std::string& command);

}  // namespace cohort::benchmarks
