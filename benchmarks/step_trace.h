#pragma once

#include <functional>
#include <string>

#include "cohort.h"

namespace cohort::benchmarks {

// The flag --profile=FILE: a Chrome trace of one step. Without the flag nothing is done.
class StepTrace {
 public:
  StepTrace() = default;  // as without the flag
  explicit StepTrace(Flags& flags);

  // Throws where the file cannot be written, which is better told before the measuring than after
  // it. What the file holds stays until record() has something to put in its place.
  void check() const;
  // Runs `step` under a Profiler and writes the file. Returns the profiler's summary.
  std::string record(const std::function<void()>& step) const;

 private:
  std::string path_;
};

}  // namespace cohort::benchmarks
