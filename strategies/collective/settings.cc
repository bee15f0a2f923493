#include "strategies/collective/settings.h"

#include "strategies/collective/communication_backend.h"
#include "strategies/collective/flight_recorder_options.h"
#include "strategies/collective/stall_setting.h"
#include "strategies/collective/tcp/payload_setting.h"

namespace cohort {

void check_collective_settings(const Environment& environment) {
  backend_asked_for(CommunicationBackend::kAuto, environment);
  stall_warning_asked_for(environment);
  flight_recorder_options("", environment);
  tcp::payload_checks_asked_for(environment);
}

}  // namespace cohort
