#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/cluster/coordination/key_value_store.h"
#include "strategies/cluster/environment.h"

namespace cohort {

struct FlightRecorderOptions {
  // Where ranks of several processes show each other what they did last; it must outlive the
  // communicators. Without one, a process knows of its own ranks only.
  KeyValueStore* store = nullptr;
  // The same without a thread that listens for others: ranks that are in a call whose time limit
  // is over show each other what they did, and those that are not in it have nothing to say. Used
  // as long as it is there.
  std::weak_ptr<KeyValueStore> store_on_time_out = {};
  // Begins the group's keys in the store; never used twice in it. The same on all ranks.
  std::string name = "group";
  // How long to wait for what the ranks of other processes did, all of them together.
  std::chrono::milliseconds gather_limit{1000};
  // How many operations of each rank are kept; with 0, nothing is recorded.
  size_t kept = 64;
  // Begins the name of the file to which the table is added: FILE.rank3, where 3 is the first rank
  // of this process. Where empty, or when it cannot be written, the table goes to standard error.
  std::string file = {};
  // Gets the table, lines that end in newlines, in place of a file. Called on a thread that has got
  // an error.
  std::function<void(const std::string& table)> notice = {};
  // Where given, it becomes what shows such a table of this process's ranks, and one of each part
  // of them, whenever it is called while the communicators live, on any thread; `why` is in its
  // first line. For calls that wait for long, which are no errors.
  std::shared_ptr<std::function<void(const std::string& why)>> show = {};
};

// Those that the environment asks for, of the group `name`:
//
//   COHORT_FLIGHT_RECORDER_SIZE  `kept`, 0 to 1,000,000
//   COHORT_FLIGHT_RECORDER_FILE  `file`
//
// kInvalidArgument for another size.
FlightRecorderOptions flight_recorder_options(const std::string& name,
                                              const Environment& environment = process_environment);

// Communicators that do what the given ones do, of all ranks of this process, and keep the last
// operations of each rank: what, how much, by which op and of which shape the first tensor is
// (where the call tells it), when, and whether it is still under way. When an operation fails, or
// the group is aborted by another error than kCancelled, one table per process shows what each of
// its ranks did last, so that one can see who waits in which call: collectives have the same
// numbers on all ranks. The error itself stays what it is. An abort by kResourceExhausted,
// kPermissionDenied or kNotFound, as of a file, while no rank of the process is in an operation,
// makes no table either, nor does kOutOfRange, which is about values, ever, nor a message that is
// refused, after which the group goes on.
//
// With a store, the table has the ranks of all processes, and those that are elsewhere, as in a
// loop that never ends, are heard as well, by a thread of their process; with a store for
// time-outs, those that have got kDeadlineExceeded from a call. Recording takes no memory for an
// operation, and less than a tenth of a microsecond; its times are exact to the system's tick, some
// milliseconds. Parts made by split() are recorded, each by itself, without the store.
std::vector<std::unique_ptr<Communicator>> record_flights(
    std::vector<std::unique_ptr<Communicator>> ranks, const FlightRecorderOptions& options);

}  // namespace cohort
