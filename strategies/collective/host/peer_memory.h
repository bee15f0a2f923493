#pragma once

#include <array>
#include <optional>
#include <vector>

#include "strategies/collective/host/host_group.h"

namespace cohort {

// What one rank can reach of the others' memory: the regions of their processes that it has mapped.
// Each rank has slots for regions. What comes into a slot, or goes, its owner tells the others
// together with the next collective; they map it, and only what all could map is used.
class PeerMemory {
 public:
  // `group` must outlive this.
  PeerMemory(const HostGroup& group, int rank);

  // The owner's side, while it fills `post`: tells of regions that have gone.
  void begin(Post& post);
  // Where others find some memory of this rank: nothing when they cannot.
  std::optional<Location> locate(const void* memory, int64_t bytes, Post& post);
  // Of memory into which they write. Until end() no other group of this process locates a target in
  // the same pages, so that these can be taken back.
  std::optional<Location> locate_target(const void* memory, int64_t bytes, Post& post);
  // The call that has begun is over, however it has ended.
  void end();

  // Keeps others from writing into some memory that they may have located: it is zeros then, and
  // not located again.
  void take_back(void* memory, int64_t bytes);

  // The others' side, after a meeting: whether some rank has news about its slots. If so, all call
  // `attach`, meet again, and call `settle`, whose result is whether all news could be followed:
  // the same on all ranks.
  bool has_news(uint64_t turn) const;
  void attach(uint64_t turn);
  bool settle();

  // A rank's memory; null when it is not where it should be. Of 0 bytes it is never null, and never
  // to be used.
  char* resolve(int rank, const Location& location, int64_t bytes) const;

 private:
  static constexpr uint64_t kNone = 0;
  struct Own {
    uint64_t region = kNone;
    bool usable = false;
    uint64_t used_at = 0;
    char* begin = nullptr;
    size_t bytes = 0;
  };

  int find_slot(uint64_t region);
  // A slot for a new region; nothing when those free are used up in this call.
  std::optional<int> take_slot(Post& post);
  static int num_events(const Post& post);

  const HostGroup& group_;
  const int rank_;
  const bool one_process_;
  std::array<Own, kRegionSlots> own_;
  std::vector<std::array<SharedRegion, kRegionSlots>> attached_;  // by rank
  bool has_claims_ = false;
  uint64_t calls_ = 0, released_seen_ = 0;
  int last_slot_ = 0;
};

}  // namespace cohort
