#include "benchmarks/peer_program.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "core/base/error.h"

namespace cohort::benchmarks {
namespace {

struct Recipe {
  const char* packages;
  const char* source;
  const char* compiler;  // with what goes before the source
  const char* libraries;
};

const std::map<std::string, Recipe>& recipes() {
  static const std::map<std::string, Recipe> all{
      {"openmpi",
       {"libopenmpi-dev openmpi-bin", "openmpi_allreduce.c", "mpicc -O3 -march=native", ""}},
      {"gloo", {"libgloo-dev", "gloo_allreduce.cc", "g++ -O3 -march=native", "-lgloo -lpthread"}},
      {"memory", {"g++", "memory_bandwidth.cc", "g++ -O3 -march=native", "-lpthread"}},
      {"socket", {"g++", "socket_bandwidth.cc", "g++ -O3 -march=native", "-lpthread"}},
  };
  return all;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

}  // namespace

std::vector<std::string> PeerProgram::names() {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : recipes()) names.push_back(name);
  return names;
}

PeerProgram::PeerProgram(const std::string& name, const std::string& sources) : name_(name) {
  const Recipe& recipe = recipes().at(name);
  const std::string build = str(recipe.compiler, " ", quoted(sources + "/" + recipe.source), " -o ",
                                command(), " ", recipe.libraries);
  if (std::system(build.c_str()) == 0) return;
  fail(Code::kUnavailable, "cannot build the peer ", name, ", which needs the packages ",
       recipe.packages, ": ", build);
}

std::string PeerProgram::command() const { return quoted(folder() + "/program"); }

std::string peer_sources(const char* argv0) {
  return str(argv0, ".runfiles/cohort/benchmarks/peers");
}

std::vector<std::string> lines_of(const std::string& command) {
  const auto close = [](FILE* f) { pclose(f); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) fail(Code::kUnavailable, "cannot start ", command);
  std::vector<std::string> lines;
  char line[512];
  while (std::fgets(line, sizeof(line), pipe.get()) != nullptr) lines.emplace_back(line);
  return lines;
}

}  // namespace cohort::benchmarks
