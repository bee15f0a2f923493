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
  };
  return all;
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

}  // namespace

std::vector<std::string> AllReducePeer::names() {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : recipes()) names.push_back(name);
  return names;
}

AllReducePeer::AllReducePeer(const std::string& name, const std::string& sources) : name_(name) {
  const Recipe& recipe = recipes().at(name);
  const std::string command =
      str(recipe.compiler, " ", quoted(sources + "/" + recipe.source), " -o ",
          quoted(folder_.path() + "/program"), " ", recipe.libraries);
  if (std::system(command.c_str()) == 0) return;
  fail(Code::kUnavailable, "cannot build the peer ", name, ", which needs the packages ",
       recipe.packages, ": ", command);
}

std::map<int64_t, double> AllReducePeer::run(int ranks, const std::vector<int64_t>& sizes) {
  std::string arguments;
  for (const int64_t size : sizes) arguments += str(" ", size);
  const std::string program = quoted(folder_.path() + "/program");
  std::string command;
  if (name_ == "openmpi") {
    command = str("OMPI_MCA_btl_base_warn_component_unused=0 mpirun --allow-run-as-root ",
                  "--oversubscribe -np ", ranks, " ", program, arguments);
  } else {
    const std::string store = str(folder_.path(), "/store-", runs_++);
    std::filesystem::create_directory(store);
    for (int r = 0; r < ranks; ++r)
      command += str(program, " ", r, " ", ranks, " ", quoted(store), arguments, " & ");
    command += "wait";
  }
  const auto close = [](FILE* f) { pclose(f); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) fail(Code::kUnavailable, "cannot start ", command);
  std::map<int64_t, double> medians;
  char line[512];
  while (std::fgets(line, sizeof(line), pipe.get()) != nullptr) {
    char label[32];
    int np = 0;
    long long bytes = 0;
    double microseconds = 0;
    if (std::sscanf(line, "%31s np=%d bytes=%lld median_us=%lf", label, &np, &bytes,
                    &microseconds) == 4)
      medians[bytes] = microseconds;
  }
  for (const int64_t size : sizes)
    if (!medians.contains(size))
      fail(Code::kUnavailable, "the peer ", name_, " printed nothing for ", size,
           " bytes: ", command);
  return medians;
}

}  // namespace cohort::benchmarks
