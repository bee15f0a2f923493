#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

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

}  // namespace cohort
