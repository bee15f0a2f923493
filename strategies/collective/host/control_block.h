#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/collective/call.h"
#include "strategies/collective/host/shared_region.h"

// The layout of the memory that all ranks of a group share. What others write here may be wrong or
// change while it is read: whoever uses a size or a place from it copies it and checks the copy.
namespace cohort {

// A count that others may change: read once, and within bounds.
inline int32_t read_count(const int32_t& count, int32_t most) {
  const int32_t read = static_cast<const volatile int32_t&>(count);
  return read < 0 ? 0 : read > most ? most : read;
}

inline constexpr size_t kSharingUnit = 128;  // bytes that processors pass to each other together
inline constexpr int kMaxHostRanks = 128;    // of one group

// Where the ranks meet; SharedMeeting gives it its meaning.
struct MeetingState {
  static constexpr size_t kMessageBytes = 4096, kPeerBytes = 256;

  alignas(kSharingUnit) std::atomic<uint32_t> arrived;
  alignas(kSharingUnit) std::atomic<uint32_t> state;
  std::atomic<uint32_t> sleepers;
  alignas(kSharingUnit) std::atomic<uint32_t> error_stage;
  int32_t error_code;
  uint32_t message_bytes, peer_bytes;
  char message[kMessageBytes], peer[kPeerBytes];
};

// What a rank tells the others outside of collectives.
struct alignas(kSharingUnit) RankState {
  std::atomic<uint64_t> meetings;  // to which it has come
  // Rung by others that have news about messages for this rank.
  alignas(kSharingUnit) std::atomic<uint32_t> bell;
  std::atomic<uint32_t> bell_sleepers;
};

// A place in memory that other ranks can reach: `offset` bytes into the region in one of the
// owner's slots. Or, among threads of one process, an address.
struct Location {
  static constexpr int64_t kEmpty = -1, kAddress = -2;
  int64_t slot = kEmpty;
  int64_t offset = 0;
};

// Neighbouring elements of a rank's memory.
struct SharedRun {
  Location source, target;
  int64_t bytes;
};

// A region comes into a slot of its owner, or, with no bytes, goes out of it.
struct RegionEvent {
  int32_t slot;
  int32_t descriptor;
  uint64_t bytes;
};
inline constexpr int kRegionSlots = 64;  // of each rank; the bits of a word

// What a rank tells the others at the beginning of a collective. There are two for each rank, used
// in turns: nobody writes one before all have read it, which they have when they come to the next
// collective.
struct Post {
  static constexpr int kRuns = 1024;  // of a call that is made in place
  static constexpr int kEvents = kRegionSlots;
  static constexpr size_t kTextBytes = 1024;
  static constexpr size_t kInlineBytes = 8192;

  alignas(kSharingUnit) Fingerprint fingerprint;
  int32_t mistake;  // whether this rank alone sees that its call is wrong, as `text` says
  int32_t direct;   // whether `runs` are all memory of the call
  int32_t num_runs, num_events;
  SharedRun first_run;  // in place of runs[0], together with the above
  SharedRun& run(int index) { return index == 0 ? first_run : runs[index]; }
  const SharedRun& run(int index) const { return index == 0 ? first_run : runs[index]; }

  // Blocks of this rank's slice that ranks have taken to reduce; more than there are when all are.
  alignas(kSharingUnit) std::atomic<uint32_t> taken;

  alignas(kSharingUnit) char payload[kInlineBytes];  // a small call's source itself
  SharedRun runs[kRuns];
  RegionEvent events[kEvents];
  // The call in words, or what is wrong with it, when the ranks need it for an error.
  char text[kTextBytes];
  int32_t text_bytes;
  // Of an all-to-all.
  int64_t send_bytes[kMaxHostRanks], receive_bytes[kMaxHostRanks];
};

// What one rank sends to another; SharedMessages gives it its meaning. Slots are used in turns.
struct Lane {
  static constexpr size_t kSlots = 16;
  static constexpr size_t kWindowBytes = size_t{1} << 16;
  static constexpr size_t kInlineBytes = 1024;

  // The sender tells of a message.
  struct Told {
    alignas(64) std::atomic<uint32_t> full;
    int32_t tag;
    int64_t bytes;
    char payload[kInlineBytes];
  };
  // The receiver answers about the message that was told of as the `number`-th of all.
  struct Answer {
    alignas(64) std::atomic<uint32_t> full;
    int32_t verdict;
    uint64_t number;
    int64_t capacity;
  };

  Told told[kSlots];
  Answer answers[kSlots];
  // Bytes that have gone through the window since the beginning.
  alignas(kSharingUnit) std::atomic<uint64_t> written;
  alignas(kSharingUnit) std::atomic<uint64_t> read;
  alignas(kSharingUnit) char window[kWindowBytes];
};

// The whole, as one rank sees it.
class ControlBlock {
 public:
  // What a rank puts in one of its staging areas, of which it has two, as of the areas for results.
  static constexpr size_t kStagingBytes = size_t{1} << 18;

  // A new one, in which everything is zero.
  static ControlBlock create(int size);
  // That of another process; errors as SharedRegion::open.
  static ControlBlock open(const ProcessIdentity& owner, int descriptor, int size);

  SharedRegion& region() { return region_; }
  MeetingState& meeting() const { return at<MeetingState>(0); }
  RankState& rank(int rank) const { return at<RankState>(ranks_, rank); }
  Post& post(int rank, uint64_t turn) const {
    return at<Post>(posts_, 2 * rank + static_cast<int>(turn % 2));
  }
  // A bit for every slot of `owner` that `rank` could not map.
  std::atomic<uint64_t>& failed_slots(int rank, int owner) const {
    return at<std::atomic<uint64_t>>(failures_, rank * size_ + owner);
  }
  char* staging(int rank, int64_t turn) const {
    return region_.data() + staging_ + static_cast<size_t>(4 * rank + turn % 2) * kStagingBytes;
  }
  char* result(int rank, int64_t turn) const {
    return region_.data() + staging_ + static_cast<size_t>(4 * rank + 2 + turn % 2) * kStagingBytes;
  }
  Lane& lane(int sender, int receiver) const { return at<Lane>(lanes_, sender * size_ + receiver); }

 private:
  explicit ControlBlock(int size);
  size_t bytes() const;

  template <typename T>
  T& at(size_t offset, int index = 0) const {
    return reinterpret_cast<T*>(region_.data() + offset)[index];
  }

  int size_;
  size_t ranks_, posts_, failures_, staging_, lanes_;
  SharedRegion region_;
};

}  // namespace cohort
