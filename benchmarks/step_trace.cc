#include "benchmarks/step_trace.h"

namespace cohort::benchmarks {

StepTrace::StepTrace(Flags& flags)
    : path_(flags.text("profile", "", "writes a Chrome trace of one step to this file",
                       {.choices = {}, .alone = "trace.json"})) {}

void StepTrace::check() const {
  if (!path_.empty()) check_writable(path_);
}

std::string StepTrace::record(const std::function<void()>& step) const {
  if (path_.empty()) return "";
  Profiler profiler;
  step();
  profiler.write(path_);
  return profiler.summary();
}

}  // namespace cohort::benchmarks
