#include "strategies/coordinator/held_calls.h"

#include <algorithm>
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

ClosurePtr& HeldCalls::add(Counts counts) {
  note(counts);
  return held_.emplace_back(Held{nullptr, std::move(counts)}).closure;
}

size_t HeldCalls::break_off(const Counts& counts, std::vector<ClosurePtr>& settled) {
  is_dirty_ = true;
  take_settled(settled);
  const size_t sent = settled.size();
  note(counts);
  take_settled(settled);
  return settled.size() - sent;
}

bool HeldCalls::is_mixed() const {
  return std::ranges::any_of(held_, [](const Held& held) {
    return std::ranges::any_of(held.counts, [](const auto& count) { return !count.second; });
  });
}

void HeldCalls::take_settled(std::vector<ClosurePtr>& settled) {
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
  settled.reserve(settled.size() + held_.size());
  for (Held& held : held_)
    if (!is_live(held)) settled.push_back(std::move(held.closure));
  std::erase_if(held_, [](const Held& held) { return held.closure == nullptr; });
}

void HeldCalls::take_excess(std::vector<ClosurePtr>& excess) {
  if (held_.size() > kMost) take(excess);
}

std::vector<ClosurePtr> HeldCalls::take_all() {
  sums_.clear();
  is_dirty_ = false;
  std::vector<ClosurePtr> all;
  take(all);
  return all;
}

void HeldCalls::take(std::vector<ClosurePtr>& taken) {
  taken.reserve(taken.size() + held_.size());
  for (Held& held : held_) taken.push_back(std::move(held.closure));
  held_.clear();
}

}  // namespace cohort::coordinator
