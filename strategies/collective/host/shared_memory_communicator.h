#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/collective/queued_communicator.h"
#include "core/collective/stall_warning.h"
#include "strategies/cluster/coordination/key_value_store.h"

namespace cohort {

// A group of ranks on one host: each of `processes` processes has `ranks_per_process` threads, and
// thread t of process p is rank p * ranks_per_process + t.
struct SharedMemoryOptions {
  // Begins the group's keys in the store; never used twice in it.
  std::string name;
  int process = 0, processes = 1;
  int ranks_per_process = 1;
  // What errors call the processes: "worker:2"; empty where they have no names.
  std::vector<std::string> tasks = {};
  // How long to wait for the others to join.
  std::chrono::milliseconds join_limit{60'000};
  // How long a rank waits for the others in a call; for ever without one. A rank that computes for
  // longer than that between two calls ends the group.
  std::optional<std::chrono::milliseconds> limit;
  // Of a rank that waits for others to come to a call.
  StallWarning stall = {};
};

// The communicators of this process's ranks. All processes call it together.
//
// Memory from `allocate` is combined in place, other memory is copied through staging areas of
// bounded size. There is nothing to clean up, however the processes end; the end of one without
// leaving is kUnavailable on the others, naming its rank and pid, in a tenth of a second. Where
// the others give up a call within which a process is only stopped, it still writes its part of the
// result when it goes on: targets of that call in memory from `allocate` are not to be used for
// anything else until then.
// kDeadlineExceeded names the processes that have not joined. kPermissionDenied or kUnavailable, on
// all, when one cannot map another's memory (another user, another pid namespace).
std::vector<std::unique_ptr<Communicator>> make_shared_memory_communicators(
    KeyValueStore& store, const SharedMemoryOptions& options);

// The ranks of one host as a part of a larger group, whose calls they make together.
class HostCommunicator : public QueuedCommunicator {
 public:
  // What the ranks are called in the larger group, in the order of their ranks here, and how many
  // it has. Before the first `agree`.
  virtual void renumber(std::vector<int> numbers, int size) = 0;
  // Meets the other ranks of the host for a call of the larger group, without doing it: all ask for
  // the same, but for the sizes of an all-to-all. Errors are as if the call were run, as the
  // larger group's collective of this number.
  virtual void agree(const Call& call, uint64_t collective) = 0;
  // As split.
  virtual std::unique_ptr<HostCommunicator> split_host(int color, int key) = 0;
};
// As make_shared_memory_communicators.
std::vector<std::unique_ptr<HostCommunicator>> make_host_communicators(
    KeyValueStore& store, const SharedMemoryOptions& options);

}  // namespace cohort
