#include "strategies/collective/tcp/payload_setting.h"

namespace cohort::tcp {

bool payload_checks_asked_for(const Environment& environment) {
  return config::optional_integer(environment, "COHORT_TCP_CHECK_PAYLOADS", {0, 1}, "1") == 1;
}

}  // namespace cohort::tcp
