#pragma once

#include <chrono>

namespace cohort::coordination {

// When a silent peer counts as what. The leader's values hold for the whole job.
struct Timing {
  std::chrono::milliseconds heartbeat{250};
  std::chrono::milliseconds suspect{2500};
  std::chrono::milliseconds dead{5000};
};

}  // namespace cohort::coordination
