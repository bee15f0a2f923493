#include "strategies/collective/host/peer_memory.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "strategies/collective/host/page_claims.h"
#include "strategies/collective/host/region_registry.h"

namespace cohort {
namespace {

// Where memory of no bytes is said to be.
char g_nothing;

uint64_t bit(int slot) { return uint64_t{1} << slot; }

}  // namespace

PeerMemory::PeerMemory(const HostGroup& group, int rank)
    : group_(group),
      rank_(rank),
      one_process_(group.one_process()),
      attached_(one_process_ ? 0 : group.members.size()) {}

void PeerMemory::begin(Post& post) {
  post.num_events = 0;
  ++calls_;
  const uint64_t released = num_released_regions();
  if (released == released_seen_) return;
  released_seen_ = released;
  for (int slot = 0; slot < kRegionSlots; ++slot) {
    Own& own = own_[static_cast<size_t>(slot)];
    if (own.region == kNone || region_exists(own.region)) continue;
    own = {};
    post.events[post.num_events++] = {slot, -1, 0};
  }
}

std::optional<Location> PeerMemory::locate(const void* memory, int64_t bytes, Post& post) {
  if (bytes == 0) return Location{};
  if (one_process_) return Location{Location::kAddress, reinterpret_cast<int64_t>(memory)};
  const Own& last = own_[static_cast<size_t>(last_slot_)];
  const auto place = find_region(memory, static_cast<size_t>(bytes));
  if (!place) return std::nullopt;
  int slot = last.region == place->region ? last_slot_ : find_slot(place->region);
  if (slot < 0) {
    const auto taken = take_slot(post);
    if (!taken) return std::nullopt;
    slot = *taken;
    own_[static_cast<size_t>(slot)] = {place->region, true, calls_, place->begin,
                                       place->region_bytes};
    post.events[post.num_events++] = {slot, place->descriptor, place->region_bytes};
  }
  Own& own = own_[static_cast<size_t>(slot)];
  if (!own.usable) return std::nullopt;
  own.used_at = calls_;
  last_slot_ = slot;
  return Location{slot, static_cast<int64_t>(place->offset)};
}

std::optional<Location> PeerMemory::locate_target(const void* memory, int64_t bytes, Post& post) {
  const auto location = locate(memory, bytes, post);
  if (!location || location->slot < 0) return location;
  if (!claim_pages(this, &group_, memory, static_cast<size_t>(bytes))) return std::nullopt;
  has_claims_ = true;
  return location;
}

void PeerMemory::end() {
  if (std::exchange(has_claims_, false)) release_pages(this);
}

void PeerMemory::take_back(void* memory, int64_t bytes) {
  if (!one_process_) cohort::take_back(memory, static_cast<size_t>(bytes));
}

int PeerMemory::find_slot(uint64_t region) {
  const auto at =
      std::find_if(own_.begin(), own_.end(), [&](const Own& own) { return own.region == region; });
  return at == own_.end() ? -1 : static_cast<int>(at - own_.begin());
}

std::optional<int> PeerMemory::take_slot(Post& post) {
  if (post.num_events == Post::kEvents) return std::nullopt;
  const auto oldest = std::min_element(
      own_.begin(), own_.end(), [](const Own& a, const Own& b) { return a.used_at < b.used_at; });
  if (oldest->used_at == calls_) return std::nullopt;
  return static_cast<int>(oldest - own_.begin());
}

int PeerMemory::num_events(const Post& post) { return read_count(post.num_events, Post::kEvents); }

bool PeerMemory::has_news(uint64_t turn) const {
  for (size_t r = 0; r < attached_.size(); ++r)
    if (group_.control.post(static_cast<int>(r), turn).num_events != 0) return true;
  return false;
}

void PeerMemory::attach(uint64_t turn) {
  for (size_t r = 0; r < attached_.size(); ++r) {
    const auto owner = static_cast<int>(r);
    const Post& post = group_.control.post(owner, turn);
    uint64_t failed = 0;
    for (int i = 0; owner != rank_ && i < num_events(post); ++i) {
      const RegionEvent event = post.events[i];
      if (event.slot < 0 || event.slot >= kRegionSlots) continue;
      SharedRegion& region = attached_[r][static_cast<size_t>(event.slot)];
      region = {};
      if (event.bytes == 0) continue;
      try {
        region = SharedRegion::open(group_.members[r].process, event.descriptor, event.bytes);
      } catch (const Error&) {
        failed |= bit(event.slot);  // its owner learns, and the call goes another way
      }
    }
    group_.control.failed_slots(rank_, owner).store(failed, std::memory_order_relaxed);
  }
}

bool PeerMemory::settle() {
  uint64_t any = 0;
  for (size_t owner = 0; owner < attached_.size(); ++owner)
    for (size_t r = 0; r < attached_.size(); ++r) {
      const uint64_t failed =
          group_.control.failed_slots(static_cast<int>(r), static_cast<int>(owner))
              .load(std::memory_order_relaxed);
      any |= failed;
      if (static_cast<int>(owner) != rank_) continue;
      for (int slot = 0; slot < kRegionSlots; ++slot)
        if ((failed & bit(slot)) != 0) own_[static_cast<size_t>(slot)].usable = false;
    }
  return any == 0;
}

char* PeerMemory::resolve(int rank, const Location& location, int64_t bytes) const {
  const Location place = location;
  if (bytes == 0) return &g_nothing;
  if (one_process_)
    return place.slot == Location::kAddress ? reinterpret_cast<char*>(place.offset) : nullptr;
  if (place.slot < 0 || place.slot >= kRegionSlots) return nullptr;
  const auto slot = static_cast<size_t>(place.slot);
  const SharedRegion& region = attached_[static_cast<size_t>(rank)][slot];
  char* const begin = rank == rank_ ? own_[slot].begin : region.data();
  const size_t room = rank == rank_ ? own_[slot].bytes : region.bytes();
  const auto offset = static_cast<uint64_t>(place.offset), size = static_cast<uint64_t>(bytes);
  return begin != nullptr && offset <= room && size <= room - offset ? begin + offset : nullptr;
}

}  // namespace cohort
