#include "strategies/coordinator/held_calls.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cohort::coordinator {

void HeldCalls::note(const Counts& counts) {
  for (const auto& [count, waits] : counts) {
    if (waits)
      sums_.insert(count);
    else
      sums_.erase(count);
  }
}

void HeldCalls::add(ClosurePtr closure, Counts counts) {
  note(counts);
  held_.push_back({std::move(closure), std::move(counts)});
}

size_t HeldCalls::break_off(const Counts& counts, std::vector<ClosurePtr>& settled) {
  is_dirty_ = true;
  std::ranges::move(take_settled(), std::back_inserter(settled));
  note(counts);
  std::vector<ClosurePtr> unsent = take_settled();
  std::ranges::move(unsent, std::back_inserter(settled));
  return unsent.size();
}

bool HeldCalls::is_mixed() const {
  return std::ranges::any_of(held_, [](const Held& held) {
    return std::ranges::any_of(held.counts, [](const auto& count) { return !count.second; });
  });
}

std::vector<ClosurePtr> HeldCalls::take_settled() {
  std::set<uint64_t> live = sums_;
  const auto is_live = [&](const Held& held) {
    return std::ranges::any_of(held.counts,
                               [&](const auto& count) { return live.contains(count.first); });
  };
  for (size_t before = 0; before != live.size();) {
    before = live.size();
    for (const Held& held : held_)
      if (is_live(held))
        for (const auto& [count, waits] : held.counts) live.insert(count);
  }
  std::vector<ClosurePtr> settled;
  for (Held& held : held_)
    if (!is_live(held)) settled.push_back(std::move(held.closure));
  std::erase_if(held_, [](const Held& held) { return held.closure == nullptr; });
  return settled;
}

std::vector<ClosurePtr> HeldCalls::take_excess() {
  return held_.size() > kMost ? take() : std::vector<ClosurePtr>();
}

std::vector<ClosurePtr> HeldCalls::take_all() {
  sums_.clear();
  is_dirty_ = false;
  return take();
}

std::vector<ClosurePtr> HeldCalls::take() {
  std::vector<ClosurePtr> closures;
  for (Held& held : held_) closures.push_back(std::move(held.closure));
  held_.clear();
  return closures;
}

}  // namespace cohort::coordinator
