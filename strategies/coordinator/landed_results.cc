#include "strategies/coordinator/landed_results.h"

#include <utility>

namespace cohort::coordinator {

// A closure that has left those in flight, and for which there was no room here, would be nowhere.
LandedResults::LandedResults(size_t results) {
  finished.reserve(results);
  returned.reserve(results);
  failed.reserve(results);
}

void LandedResults::take(Result result, InFlightCalls& in_flight, HeldCalls& holding) {
  const Closure& closure = *in_flight.find(result.id);
  if (!result.counts.empty() && (result.returned || result.error))
    unsent += holding.break_off(result.counts, settled);
  if (result.returned) {
    returned.push_back(in_flight.take(result.id));
    return;
  }
  keeps |= closure.function->keeps_on_workers();
  if (result.error) {
    failed.emplace_back(in_flight.take(result.id), *std::move(result.error));
    return;
  }
  closure.result->set(std::move(result.values));
  if (result.counts.empty()) {
    finished.push_back(in_flight.take(result.id));
    return;
  }
  ClosurePtr& place = holding.add(std::move(result.counts));
  place = in_flight.take(result.id);
  ++held;
  if (!std::exchange(place->executed, true)) ++first;
}

void LandedResults::settle(HeldCalls& holding) {
  holding.take_settled(settled);
  const size_t before = settled.size();
  holding.take_excess(settled);
  exceeds = settled.size() > before;
}

}  // namespace cohort::coordinator
