#include "strategies/coordinator/in_flight_calls.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace cohort::coordinator {

void InFlightCalls::add(uint64_t id, ClosurePtr closure, Time sent) {
  bytes_ += closure->bytes;
  calls_.emplace_hint(calls_.end(), id, Call{std::move(closure), sent});
}

const Closure* InFlightCalls::find(uint64_t id) const {
  const auto found = calls_.find(id);
  return found == calls_.end() ? nullptr : found->second.closure.get();
}

ClosurePtr InFlightCalls::take(uint64_t id) {
  const auto found = calls_.find(id);
  COHORT_CHECK(found != calls_.end());
  ClosurePtr closure = std::move(found->second.closure);
  calls_.erase(found);
  bytes_ -= closure->bytes;
  return closure;
}

std::vector<ClosurePtr> InFlightCalls::take_all() {
  std::vector<ClosurePtr> closures;
  for (auto& [id, call] : calls_) closures.push_back(std::move(call.closure));
  calls_.clear();
  bytes_ = 0;
  return closures;
}

std::shared_ptr<FunctionFamily> InFlightCalls::ask(uint64_t function) {
  for (auto& [id, call] : calls_)
    if (call.closure->function->id() == function && !std::exchange(call.has_asked, true))
      return call.closure->function;
  return nullptr;
}

bool InFlightCalls::any_of_unit() const {
  return std::ranges::any_of(calls_,
                             [](const auto& call) { return call.second.closure->unit != 0; });
}

std::string InFlightCalls::describe() const {
  if (empty()) return "idle";
  const Call& oldest = calls_.begin()->second;
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(
      std::chrono::steady_clock::now() - oldest.sent);
  return str(size(), " in flight, the oldest, \"", oldest.closure->function->name(), "\", for ",
             age.count(), " s");
}

}  // namespace cohort::coordinator
