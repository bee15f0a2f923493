#include "strategies/collective/flight_recorder_options.h"

#include <cstddef>

namespace cohort {

FlightRecorderOptions flight_recorder_options(const std::string& name,
                                              const Environment& environment) {
  constexpr IntegerRange kSizes{0, 1'000'000};
  FlightRecorderOptions options{.name = name,
                                .file = environment("COHORT_FLIGHT_RECORDER_FILE").value_or("")};
  if (const auto kept =
          config::optional_integer(environment, "COHORT_FLIGHT_RECORDER_SIZE", kSizes, "64"))
    options.kept = static_cast<size_t>(*kept);
  return options;
}

}  // namespace cohort
