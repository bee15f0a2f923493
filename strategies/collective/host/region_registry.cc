#include "strategies/collective/host/region_registry.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "strategies/collective/host/shared_region.h"

namespace cohort {
namespace {

class Registry {
 public:
  // Lives for ever: buffers may outlive everything else.
  static Registry& get() {
    static auto* const registry = new Registry;
    return *registry;
  }

  void add(SharedRegion region) {
    const std::lock_guard lock(mutex_);
    auto* const begin = region.data();
    regions_.emplace(begin, Entry{next_id_++, std::move(region)});
  }

  void release(void* memory) {
    const std::lock_guard lock(mutex_);
    regions_.erase(static_cast<char*>(memory));
    released_.fetch_add(1, std::memory_order_release);
  }

  std::optional<RegionPlace> find(const void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto place = find_entry(memory, bytes);
    if (!place || place->entry.id == kTakenBack) return std::nullopt;
    const SharedRegion& region = place->entry.region;
    return RegionPlace{place->entry.id, region.descriptor(), region.data(), region.bytes(),
                       place->offset};
  }

  void take_back(void* memory, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto place = find_entry(memory, bytes);
    if (!place || bytes == 0) return;
    place->entry.region.take_back(place->offset, bytes);
    place->entry.id = kTakenBack;
    released_.fetch_add(1, std::memory_order_release);
  }

  bool exists(uint64_t id) {
    const std::lock_guard lock(mutex_);
    return std::any_of(regions_.begin(), regions_.end(),
                       [&](const auto& entry) { return entry.second.id == id; });
  }

  uint64_t released() const { return released_.load(std::memory_order_acquire); }

 private:
  static constexpr uint64_t kTakenBack = 0;
  struct Entry {
    uint64_t id;
    SharedRegion region;
  };
  struct Place {
    Entry& entry;
    size_t offset;
  };

  std::optional<Place> find_entry(const void* memory, size_t bytes) {
    auto* const begin = static_cast<char*>(const_cast<void*>(memory));
    const auto after = regions_.upper_bound(begin);
    if (after == regions_.begin()) return std::nullopt;
    auto& [start, entry] = *std::prev(after);
    const auto offset = static_cast<size_t>(begin - start);
    const size_t room = entry.region.bytes();
    if (offset > room || bytes > room - offset) return std::nullopt;
    return Place{entry, offset};
  }

  std::mutex mutex_;
  std::map<char*, Entry> regions_;  // by where they begin
  uint64_t next_id_ = 1;
  std::atomic<uint64_t> released_ = 0;
};

}  // namespace

std::shared_ptr<Buffer> allocate_shared_buffer(size_t bytes) {
  if (bytes > PTRDIFF_MAX)
    fail(Code::kResourceExhausted, "cannot allocate ", bytes, " bytes of shared memory");
  const size_t pages = whole_pages(std::max<size_t>(bytes, 1));
  SharedRegion region = SharedRegion::create(pages, pages);
  void* const memory = region.data();
  Registry::get().add(std::move(region));
  return {new Buffer{memory, bytes}, [](Buffer* buffer) {
            Registry::get().release(buffer->data);
            delete buffer;
          }};
}

std::optional<RegionPlace> find_region(const void* memory, size_t bytes) {
  return Registry::get().find(memory, bytes);
}

void take_back(void* memory, size_t bytes) { Registry::get().take_back(memory, bytes); }

bool region_exists(uint64_t region) { return Registry::get().exists(region); }
uint64_t num_released_regions() { return Registry::get().released(); }

}  // namespace cohort
