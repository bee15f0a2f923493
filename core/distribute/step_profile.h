#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/distribute/workers.h"
#include "core/runtime/profiler.h"

namespace cohort {

// Which steps are to be profiled, counted from 1, and into which file.
struct ProfiledSteps {
  std::string file;
  int64_t first = 10, last = 12;
};

// Of the value of COHORT_PROFILE, "FILE" or "FILE:FIRST-LAST"; nothing where it is null or empty,
// and kInvalidArgument for what is neither.
std::optional<ProfiledSteps> profiled_steps_of(const char* value);

// Profiles steps of one strategy, of which one runs at a time. What goes wrong is told in a
// warning, and the steps go on.
class StepProfile {
 public:
  explicit StepProfile(std::optional<ProfiledSteps> steps) : steps_(std::move(steps)) {}
  // Writes what there is, where the last step has not come.
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  // While alive, a step runs, on this one of `workers`.
  class Step {
   public:
    Step(StepProfile& profile, const Workers& workers) : profile_(profile) {
      profile_.begin(workers);
    }
    ~Step() { profile_.end(); }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    StepProfile& profile_;
  };

 private:
  void begin(const Workers& workers);
  void end();
  void write();

  const std::optional<ProfiledSteps> steps_;
  int64_t begun_ = 0;
  std::string file_;  // this worker's
  std::unique_ptr<Profiler> profiler_;
};

}  // namespace cohort
