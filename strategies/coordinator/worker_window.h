#pragma once

#include <cstddef>
#include <cstdint>

namespace cohort::coordinator {

// How many closures a worker may have at a time: as many as it executes in a few milliseconds, so
// that it does not wait for the next one, and others are not kept from what waits for it. One at
// first. Not synchronised.
class WorkerWindow {
 public:
  size_t closures() const { return closures_; }
  // It has executed so many in this time. REQUIRES: count > 0.
  void learn(size_t count, uint64_t us);
  // To one, until it learns more.
  void narrow() { closures_ = 1; }

 private:
  size_t closures_ = 1;
  double us_per_closure_ = 0;
};

}  // namespace cohort::coordinator
