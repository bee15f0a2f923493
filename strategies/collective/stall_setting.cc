#include "strategies/collective/stall_setting.h"

namespace cohort {

StallWarning stall_warning_asked_for(const Environment& environment) {
  StallWarning warning;
  if (const auto seconds = config::optional_integer(environment, "COHORT_STALL_WARNING_SECONDS",
                                                    {0, 1'000'000}, "60"))
    warning.after = std::chrono::seconds(*seconds);
  return warning;
}

}  // namespace cohort
