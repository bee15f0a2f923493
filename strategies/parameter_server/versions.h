#pragma once

#include <cstdint>
#include <optional>

namespace cohort {

// Which value of a shard somebody has. Versions count updates from 1; a server that restarts may
// count the same ones again, with other values, which is why it has an epoch: a random number of
// its start.
struct ShardVersion {
  uint64_t epoch = 0;
  uint64_t version = 0;  // 0: none
  bool operator==(const ShardVersion&) const = default;
};

// Updates are counted up to here: as float64, such numbers are exact.
inline constexpr uint64_t kMaxUpdateNumber = uint64_t{1} << 53;

// What became of a pushed gradient.
enum class PushOutcome : int {
  kApplied = 0,   // also where it has no rows, and nothing changes
  kRepeated = 1,  // it had been before
  kCounted = 2,   // synchronous: the update waits for others
  kLate = 3,      // synchronous: dropped, because it was computed from weights of another round
  kRefused = 4,   // by an error: it has changed nothing
};

}  // namespace cohort
