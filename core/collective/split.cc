#include "core/collective/split.h"

#include <algorithm>

namespace cohort {

GroupPart part_of(std::span<const SplitChoice> choices, int rank) {
  const auto choice = [&](int r) { return choices[static_cast<size_t>(r)]; };
  GroupPart part;
  if (choice(rank).color < 0) return part;
  for (int r = 0; r < static_cast<int>(choices.size()); ++r)
    if (choice(r).color == choice(rank).color) part.members.push_back(r);
  std::stable_sort(part.members.begin(), part.members.end(),
                   [&](int a, int b) { return choice(a).key < choice(b).key; });
  const auto place = std::find(part.members.begin(), part.members.end(), rank);
  part.rank = static_cast<int>(place - part.members.begin());
  return part;
}

GroupPart choose_part(Communicator& communicator, int color, int key) {
  return part_of(tell_all(communicator, "a split", SplitChoice{color, key}), communicator.rank());
}

}  // namespace cohort
