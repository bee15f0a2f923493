#pragma once

#include <array>
#include <cstdint>

namespace cohort {

// What a server has done since it started, and what it has.
struct ServerStatistics {
  // Stalenesses from 0 on; the last counts all from there.
  static constexpr size_t kStalenessBins = 65;

  uint64_t epoch = 0;
  uint64_t shards = 0;
  uint64_t rows = 0;              // in use
  uint64_t bytes = 0;             // of values and slots
  uint64_t pushes_applied = 0;    // by shard, as all below
  uint64_t pushes_counted = 0;    // synchronous: those that another one has completed, or is to
  uint64_t pushes_repeated = 0;   // retried, and not applied again
  uint64_t pushes_late = 0;       // synchronous: dropped, also by what has overwritten the shard
  uint64_t pushes_lost = 0;       // acknowledged before a restart that did not bring them back
  uint64_t requests_refused = 0;  // answered with an error
  uint64_t snapshots_failed = 0;  // that could not be written, its own and those it was asked for
  uint64_t received_bytes = 0;    // of payload
  uint64_t sent_bytes = 0;
  uint64_t sessions = 0;                             // open calls
  uint64_t sharing_sessions = 0;                     // of these, through shared memory
  uint64_t direct_sessions = 0;                      // and by connections without gRPC
  std::array<uint64_t, kStalenessBins> staleness{};  // of applied gradients, in updates
};

}  // namespace cohort
