#include "benchmarks/allreduce_peers.h"

#include <cstdio>
#include <filesystem>

#include "core/base/error.h"

namespace cohort::benchmarks {

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
      command += str(program_.command(), " ", r, " ", ranks, " '", store, "'", arguments, " & ");
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

}  // namespace cohort::benchmarks
