#pragma once

#include <cstdint>
#include <string>

namespace cohort {

// A process of this host. The start time tells it from a later one that got the same pid.
struct ProcessIdentity {
  int64_t pid = 0;
  uint64_t start_time = 0;  // in clock ticks since boot
  bool operator==(const ProcessIdentity&) const = default;
};

// Of the calling process.
ProcessIdentity this_process();

// Whether the system lets this process map memory of another one, which is there.
bool may_map_memory_of(const ProcessIdentity& process);

// Equal for processes that can map each other's memory and reach each other by loopback: boot id,
// pid namespace and network namespace, in one word without spaces.
std::string host_identity();

// Notices the end of a process without any help from it.
class ProcessWatch {
 public:
  // kUnavailable when there is no such process (any more).
  explicit ProcessWatch(const ProcessIdentity& process);
  ~ProcessWatch();
  ProcessWatch(ProcessWatch&& other) noexcept;
  ProcessWatch& operator=(ProcessWatch&&) = delete;

  // Whether it has ended, though nobody may have waited for it yet. Thread-safe; a system call.
  bool ended() const;

 private:
  int descriptor_;
};

}  // namespace cohort
