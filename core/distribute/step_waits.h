#pragma once

#include <chrono>
#include <vector>

namespace cohort {

// For how long the steps that this process has run so far have stood still. What lies between two
// moments is the difference of theirs.
struct StepWaits {
  // For what other replicas compute, or parameter servers have. Of several replicas in this
  // process, in each step that one counts which has waited least.
  std::chrono::nanoseconds all{0};
  // How much of that was for a worker which came later, by the rank of the one that came last: the
  // rest is communication. Empty where there is no other worker, or where nobody knows. It is found
  // out when the next step begins.
  std::vector<std::chrono::nanoseconds> for_worker;
};

}  // namespace cohort
