#include "core/distribute/step_profile.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <string_view>

#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

// 0, which no step has, for what is no number.
int64_t step_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : 0;
}

void warn(std::string_view what) { print_notice(str("warning: COHORT_PROFILE: ", what, '\n')); }

}  // namespace

std::optional<ProfiledSteps> profiled_steps_of(const char* value) {
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return std::nullopt;
  const size_t colon = text.rfind(':');
  ProfiledSteps steps{.file = std::string(text.substr(0, colon))};
  if (colon != std::string_view::npos) {
    const std::string_view range = text.substr(colon + 1);
    const size_t dash = std::min(range.find('-'), range.size());
    steps.first = step_number(range.substr(0, dash));
    steps.last = step_number(range.substr(std::min(dash + 1, range.size())));
  }
  if (steps.file.empty() || steps.first < 1 || steps.last < steps.first)
    invalid("COHORT_PROFILE is \"", text,
            "\"; allowed are FILE and FILE:FIRST-LAST, of steps counted from 1, such as "
            "\"trace.json:10-12\"");
  return steps;
}

StepProfile::~StepProfile() {
  if (profiler_ != nullptr) write();
  if (steps_ && begun_ > 0 && begun_ < steps_->first)
    warn(str("step ", steps_->first, " has not come: there were ", begun_));
}

void StepProfile::begin(const Workers& workers) {
  if (!steps_ || ++begun_ != steps_->first) return;
  file_ = workers.size() > 1 ? str(steps_->file, ".rank", workers.rank()) : steps_->file;
  try {
    profiler_ = std::make_unique<Profiler>();
  } catch (const Error& error) {  // the program has one
    warn(error.what());
  }
}

void StepProfile::end() {
  if (profiler_ != nullptr && begun_ == steps_->last) write();
}

void StepProfile::write() {
  try {
    profiler_->write(file_);
    print_notice(
        str("cohort: a trace of steps ", steps_->first, " to ", begun_, " is in ", file_, '\n'));
  } catch (const std::exception& error) {
    warn(error.what());
  }
  profiler_.reset();
}

}  // namespace cohort
