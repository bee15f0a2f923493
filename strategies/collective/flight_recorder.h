#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort {

struct FlightRecorderOptions {
  // Where ranks of several processes show each other what they did last; it must outlive the
  // communicators. Without one, a process knows of its own ranks only.
  KeyValueStore* store = nullptr;
  // Begins the group's keys in the store; never used twice in it. The same on all ranks.
  std::string name = "group";
  // How long to wait for what the ranks of other processes did, all of them together.
  std::chrono::milliseconds gather_limit{1000};
  // Gets the table, lines that end in newlines; where empty, it goes to standard error. Called on
  // a thread that has got an error.
  std::function<void(const std::string& table)> notice = {};
};

// Communicators that do what the given ones do, of all ranks of this process, and keep the last 64
// operations of each rank: what, how much, when, and whether it is still under way. When an
// operation fails, one table per process shows what each rank of the group did last, so that one
// can see who waits in which call and where the others are. The error itself stays what it is.
//
// Ranks that are elsewhere, as in a loop that never ends, are heard as well, by a thread of their
// process. Recording takes no memory and well below a microsecond for each operation. Groups made
// by split() are not recorded.
std::vector<std::unique_ptr<Communicator>> record_flights(
    std::vector<std::unique_ptr<Communicator>> ranks, const FlightRecorderOptions& options);

}  // namespace cohort
