#include "strategies/parameter_server/lent_memory.h"

#include <condition_variable>
#include <list>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "strategies/collective/host/region_registry.h"
#include "strategies/parameter_server/value_memory.h"

namespace cohort::parameter_server {
namespace {

// Of a connection. Each takes a mapping; a Linux process may have some 65,000.
constexpr size_t kMaxRegions = 4096;

struct Kept {
  std::optional<ProcessWatch> reader;  // none where there was no descriptor for it
  std::function<bool()> reads_no_more;
  std::vector<std::shared_ptr<const void>> memory;

  bool is_read() const { return !reads_no_more() && !(reader && reader->ended()); }
};

}  // namespace

std::shared_ptr<Buffer> memory_to_lend(size_t bytes) {
  if (bytes < kLentBytes) return nullptr;
  try {
    return allocate_shared_buffer(bytes);
  } catch (const Error&) {
    return nullptr;
  }
}

std::optional<LentRegions::Place> LentRegions::locate(
    const void* memory, size_t bytes, const std::function<void(const Frame&)>& tell) {
  const auto place = find_region(memory, bytes);
  if (!place) return std::nullopt;
  withdraw(tell);
  auto known = known_.find(place->region);
  if (known == known_.end()) {
    if (known_.size() == kMaxRegions) return std::nullopt;
    known = known_.emplace(place->region, ++last_).first;
    tell({.kind = Frame::Kind::kRegion,
          .region = known->second,
          .number = static_cast<uint64_t>(place->descriptor),
          .bytes = place->region_bytes});
  }
  return Place{.region = known->second, .offset = place->offset};
}

void LentRegions::withdraw(const std::function<void(const Frame&)>& tell) {
  const uint64_t released = num_released_regions();
  if (std::exchange(released_seen_, released) == released) return;
  std::erase_if(known_, [&](const auto& entry) {
    if (region_exists(entry.first)) return false;
    tell({.kind = Frame::Kind::kRegion, .region = entry.second});
    return true;
  });
}

struct BorrowedRegions::Held {
  std::mutex mutex;
  std::condition_variable returned;
  uint64_t count = 0;
};

BorrowedRegions::BorrowedRegions() : held_(std::make_shared<Held>()) {}

void BorrowedRegions::change(const Frame& frame, const ProcessIdentity& owner) {
  regions_.erase(frame.region);
  if (frame.bytes == 0) return;
  if (frame.region == 0 || frame.number > INT32_MAX || regions_.size() == kMaxRegions)
    invalid("the other side lends region ", frame.region, " as descriptor ", frame.number,
            "; at most ", kMaxRegions, " regions");
  regions_[frame.region] = std::make_shared<SharedRegion>(
      SharedRegion::open(owner, static_cast<int>(frame.number), frame.bytes));
}

std::shared_ptr<Buffer> BorrowedRegions::at(const Frame& frame) {
  const auto found = regions_.find(frame.region);
  if (found == regions_.end()) invalid("the other side has not lent region ", frame.region);
  const SharedRegion& region = *found->second;
  const size_t before = frame.sequence != 0 ? sizeof(ValueGuard) : 0;
  if (frame.number > region.bytes() || frame.bytes > region.bytes() - frame.number ||
      frame.number < before || (before != 0 && frame.number % alignof(ValueGuard) != 0))
    invalid("the other side has ", frame.bytes, " bytes at ", frame.number, " of a region of ",
            region.bytes());
  std::unique_ptr<Buffer> memory(new Buffer{region.data() + frame.number, frame.bytes});
  {
    const std::lock_guard lock(held_->mutex);
    ++held_->count;
  }
  // From here on it is returned, also where this throws.
  return {memory.release(), [held = held_, region = found->second](Buffer* buffer) {
            delete buffer;
            const std::lock_guard lock(held->mutex);
            if (--held->count == 0) held->returned.notify_all();
          }};
}

void BorrowedRegions::wait_until_returned() {
  std::unique_lock lock(held_->mutex);
  held_->returned.wait(lock, [this] { return held_->count == 0; });
}

void keep_lent(const ProcessIdentity& reader, std::function<bool()> reads_no_more,
               std::vector<std::shared_ptr<const void>> memory) {
  // Lives for ever: a reader may be frozen for longer than anything else here.
  static auto* const mutex = new std::mutex;
  static auto* const all = new std::list<Kept>;
  std::list<Kept> done;  // let go of outside the lock
  const std::lock_guard lock(*mutex);
  bool has_ended = false;
  std::optional<ProcessWatch> watch;
  try {
    watch.emplace(reader);
  } catch (const Error& error) {
    has_ended = error.code() == Code::kUnavailable;
  }
  if (!has_ended) all->push_back({std::move(watch), std::move(reads_no_more), std::move(memory)});
  for (auto at = all->begin(); at != all->end();) {
    const auto next = std::next(at);
    if (!at->is_read()) done.splice(done.end(), *all, at);
    at = next;
  }
}

}  // namespace cohort::parameter_server
