#include "benchmarks/allreduce_peers.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
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
      {kMemoryPeer, {"g++", "memory_bandwidth.cc", "g++ -O3 -march=native", "-lpthread"}},
  };
  return all;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

// What `command` prints, each line with its end.
std::vector<std::string> lines_of(const std::string& command) {
  const auto close = [](FILE* f) { pclose(f); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) fail(Code::kUnavailable, "cannot start ", command);
  std::vector<std::string> lines;
  char line[512];
  while (std::fgets(line, sizeof(line), pipe.get()) != nullptr) lines.emplace_back(line);
  return lines;
}

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

std::map<int64_t, double> AllReducePeer::run(int ranks, const std::vector<int64_t>& sizes) {
  std::string arguments;
  for (const int64_t size : sizes) arguments += str(" ", size);
  std::string command;
  if (name() == "openmpi") {
    command = str("OMPI_MCA_btl_base_warn_component_unused=0 mpirun --allow-run-as-root ",
                  "--oversubscribe -np ", ranks, " ", program_.command(), arguments);
  } else {
    const std::string store = str(program_.folder(), "/store-", runs_++);
    std::filesystem::create_directory(store);
    for (int r = 0; r < ranks; ++r)
      command += str(program_.command(), " ", r, " ", ranks, " ", quoted(store), arguments, " & ");
    command += "wait";
  }
  std::map<int64_t, double> medians;
  for (const std::string& line : lines_of(command)) {
    char label[32];
    int np = 0;
    long long bytes = 0;
    double microseconds = 0;
    if (std::sscanf(line.c_str(), "%31s np=%d bytes=%lld median_us=%lf", label, &np, &bytes,
                    &microseconds) == 4)
      medians[bytes] = microseconds;
  }
  for (const int64_t size : sizes)
    if (!medians.contains(size))
      fail(Code::kUnavailable, "the peer ", name(), " printed nothing for ", size,
           " bytes: ", command);
  return medians;
}

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

}  // namespace cohort::benchmarks
