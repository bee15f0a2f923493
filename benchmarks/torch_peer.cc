#include "benchmarks/torch_peer.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace cohort::benchmarks {

double TorchPeer::run(int64_t steps) const {
  const std::string place = device.type == DeviceType::kCpu ? "cpu" : str("cuda:", device.index);
  const std::string command =
      str("${PYTHON:-/usr/bin/python3} ", program, " --model=", model, " --batch=", batch,
          " --threads=", threads, " --workers=", workers, " --steps=", steps,
          " --precision=", precision_name(precision), " --device=", place, tf32 ? " --tf32" : "",
          compile ? " --compile" : "", channels_last ? " --channels-last" : "");
  const auto close = [](FILE* f) { pclose(f); };
  const std::unique_ptr<FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) fail(Code::kUnavailable, "cannot start ", command);
  char line[512];
  double milliseconds = 0;
  while (std::fgets(line, sizeof(line), pipe.get()) != nullptr) {
    std::fputs(line, stdout);
    if (const char* found = std::strstr(line, "median_ms=")) milliseconds = std::atof(found + 10);
  }
  if (milliseconds <= 0)
    fail(Code::kUnavailable,
         "the peer printed no result; it needs the packages python3-torch and libopenblas0, or a ",
         "Python with torch in $PYTHON: ", command);
  return milliseconds;
}

std::string torch_program(const char* argv0) {
  return str(argv0, ".runfiles/cohort/benchmarks/peers/torch_train.py");
}

}  // namespace cohort::benchmarks
