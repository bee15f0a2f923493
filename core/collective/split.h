#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/collective/communicator.h"

// What the backends' split() have in common.
namespace cohort {

// What a rank asks for in a split.
struct SplitChoice {
  int color, key;
};

// The part of a group that a rank goes to.
struct GroupPart {
  std::vector<int> members;  // their ranks in the whole group; empty for a negative color
  int rank = 0;              // of this one in the part
  int size() const { return static_cast<int>(members.size()); }
};

// The part of `rank`, where choices[r] is that of rank r.
GroupPart part_of(std::span<const SplitChoice> choices, int rank);

// What every rank tells every other, by rank. A collective call, whose `topic` is AllGatherCall's.
template <typename T>
std::vector<T> tell_all(Communicator& communicator, std::string_view topic, const T& own) {
  const auto size = static_cast<size_t>(communicator.size());
  std::vector<T> all(size);
  const std::vector<int64_t> bytes(size, sizeof(T));
  communicator.all_gather(&own, all.data(), bytes, topic);
  return all;
}

// The part of this rank where all tell each other what they choose. A collective call.
GroupPart choose_part(Communicator& communicator, int color, int key);

}  // namespace cohort
