#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/collective/stall_warning.h"
#include "strategies/collective/host/control_block.h"

namespace cohort {

// The other processes of a group, each watched.
struct HostPeers {
  // A rank whose process has ended.
  std::optional<int> find_ended() const;

  std::vector<int64_t> pids;       // by rank
  std::vector<std::string> tasks;  // by rank; "" where it has no name
  struct Watched {
    int rank;  // one of the process
    ProcessWatch watch;
  };
  std::vector<Watched> processes;  // without this one
};

// What a rank waits for, to be told when that lasts too long: "an all-reduce ...".
using Waiting = std::function<std::string()>;

// One rank's door to where the ranks of a group meet, in whatever processes they are. A collective
// is a `meet`, then work in which everybody may use what the others wrote before it, then a `part`.
// Nobody waits in vain: who waits looks several times a second whether the others' processes live,
// and gives up after the time limit. What ends the group ends it for all ranks, with one error.
class SharedMeeting {
 public:
  // All that is given must outlive this. No limit is as long as it takes.
  SharedMeeting(const ControlBlock& control, const HostPeers& peers, int rank, int size,
                std::optional<std::chrono::milliseconds> limit, const StallWarning& stall);

  // Returns when all ranks have called it. Throws the error that ended the group before the last of
  // them came: for all ranks or for none. `waiting` is called only for an error's message.
  template <typename W>
  void meet(const W& waiting) {
    const Reference reference{&waiting, &call<W>};
    come(kBroken, reference);
  }
  // As meet, between ranks that have met: an abort does not keep them from finishing together, as
  // long as they soon can. The end of a process, or the time limit, does; but threads of one
  // process alone always finish, whatever the limit.
  template <typename W>
  void part(const W& waiting) {
    const Reference reference{&waiting, &call<W>};
    come(kLost, reference);
  }

  // Ends the group with `error`, unless it has ended. From any thread.
  void abort(const Error& error) { end(error, kBroken); }
  // As abort, and lets even those go who wait for ranks to finish.
  void lose(const Error& error) { end(error, kBroken | kLost); }
  bool ended() const;
  // Whether ranks that have met no longer wait for each other to finish.
  bool lost() const;
  // The error that ended the group.
  Error error() const;

  // Waits, a short while, until `bell` is no longer `seen`, or the group has ended.
  void await_bell(std::atomic<uint32_t>& bell, uint32_t seen);
  // Tells the thread that waits for news for `rank`.
  void ring(int rank);
  // Ends the group if a process has ended.
  void check_peers();
  std::optional<std::chrono::milliseconds> limit() const { return limit_; }
  const StallWarning& stall() const { return stall_; }
  // Whether it says for whom a later `meet` waits.
  void set_warns(bool warns) { warns_ = warns; }
  // "worker:1 (rank 3, pid 1234)", or "rank 3 (pid 1234)".
  std::string name(int rank) const;
  // As errors name the one at fault: "worker:1", or its name.
  std::string peer(int rank) const;
  // What errors call a rank: itself, unless the ranks are part of a larger group, in which they
  // have these numbers. Before the first meeting.
  int number(int rank) const {
    return numbers_.empty() ? rank : numbers_[static_cast<size_t>(rank)];
  }
  void renumber(std::vector<int> numbers) { numbers_ = std::move(numbers); }

 private:
  // The state is a multiple of kMeeting, the number of completed meetings, and these bits: one
  // word, so that a meeting is either completed for all or broken for all.
  static constexpr uint32_t kBroken = 1, kLost = 2, kMeeting = 4;

  struct Reference {
    const void* object;
    std::string (*describe)(const void*);
  };
  template <typename W>
  static std::string call(const void* object) {
    return (*static_cast<const W*>(object))();
  }

  // Comes to the next meeting, which is broken by any of the bits `breaking`.
  void come(uint32_t breaking, const Reference& waiting);
  void complete(uint32_t breaking);
  void wait(uint32_t before, uint32_t breaking, const Reference& waiting);
  void end(const Error& error, uint32_t bits);
  bool try_store(const Error& error);
  // Those that have not come, and whether this rank is the first that has.
  struct Absence {
    std::vector<int> ranks;
    bool is_first = true;
    std::string names;  // "nobody"
  };
  Absence find_absent() const;
  Error late(const Reference& waiting) const;
  void warn(const Reference& waiting) const;

  const ControlBlock& control_;
  MeetingState& shared_;
  const HostPeers& peers_;
  const int rank_, size_;
  const std::optional<std::chrono::milliseconds> limit_;
  const StallWarning& stall_;
  bool warns_ = true;
  std::vector<int> numbers_;  // empty where ranks have none but their own
  const int spins_;
  uint64_t meetings_ = 0;
};

// Sleeps until the word is no longer `expected`, somebody wakes it, or the time is over. Words may
// be shared between processes.
void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::milliseconds limit);
void futex_wake_all(std::atomic<uint32_t>& word);

}  // namespace cohort
