#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/coordinator/closure.h"
#include "strategies/coordinator/held_calls.h"
#include "strategies/coordinator/in_flight_calls.h"
#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

// What the results in a message of a worker make of the closures that are in flight there, and of
// those that it holds.
struct LandedResults {
  // For as many results at most.
  explicit LandedResults(size_t results);

  // Sorts a result and its closure, which leaves `in_flight`; but where this throws, for lack of
  // memory, it is in flight still. REQUIRES: it was.
  void take(Result result, InFlightCalls& in_flight, HeldCalls& holding);
  // Takes out of `holding` what need not be held, or cannot be. To be called after all results.
  void settle(HeldCalls& holding);

  size_t executed() const { return finished.size() + failed.size() + held; }

  std::vector<ClosurePtr> finished, returned, settled;
  std::vector<std::pair<ClosurePtr, Error>> failed;
  size_t held = 0, first = 0;  // that are held now, and of these, executed for the first time
  size_t unsent = 0;           // of the settled ones, that may not have been sent
  bool exceeds = false;        // more than may be was held
  bool keeps = false;          // what they did goes with the worker, in variables of its own
};

}  // namespace cohort::coordinator
