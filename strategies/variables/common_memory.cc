#include "strategies/variables/common_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "core/distribute/packing.h"
#include "strategies/collective/host/process_identity.h"

namespace cohort {
namespace {

constexpr auto kViews = SharedRegion::Views::kSharedAndOwn;

// Nothing where `work` throws: then the workers do without.
template <typename F>
std::optional<SharedRegion> attempt(const F& work) {
  try {
    return work();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// How others reach a region of this process.
std::string offer(const SharedRegion& region) {
  const ProcessIdentity self = this_process();
  Packer packer;
  packer.add(self.pid);
  packer.add(static_cast<int64_t>(self.start_time));
  packer.add(int64_t{region.descriptor()});
  return packer.bytes();
}

SharedRegion accept(const std::string& offered, size_t bytes) {
  Unpacker unpacker(offered);
  ProcessIdentity owner;
  owner.pid = unpacker.number();
  owner.start_time = static_cast<uint64_t>(unpacker.number());
  const auto descriptor = static_cast<int>(unpacker.number());
  return SharedRegion::open(owner, descriptor, bytes, kViews);
}

}  // namespace

std::shared_ptr<CommonMemory> CommonMemory::make(Workers& workers, const std::string& topic,
                                                 const Tensor& value) {
  const size_t bytes = value.bytes(), pages = whole_pages(std::max<size_t>(bytes, 1));
  std::optional<SharedRegion> region;
  if (workers.is_chief()) {
    region = attempt([&] { return SharedRegion::create(pages, pages, kViews); });
    if (region && bytes > 0) std::memcpy(region->data(), value.raw(), bytes);
  }
  const auto offers =
      workers.exchange(topic + ": its memory", region ? offer(*region) : std::string());
  if (!workers.is_chief() && !offers[0].empty())
    region = attempt([&] { return accept(offers[0], pages); });
  const auto mapped = workers.exchange(topic + ": who has mapped it", region ? "yes" : "no");
  if (std::count(mapped.begin(), mapped.end(), "yes") < workers.size()) return nullptr;
  region->close_descriptor();
  return std::shared_ptr<CommonMemory>(new CommonMemory(std::move(*region), bytes));
}

void CommonMemory::publish() {
  if (bytes_ > 0) std::memcpy(common(), own(), bytes_);
}

size_t CommonWrites::add(const std::shared_ptr<CommonMemory>& memory) {
  const std::lock_guard lock(mutex_);
  all_.push_back(memory);
  return all_.size() - 1;
}

void CommonWrites::note(size_t number) {
  const std::lock_guard lock(mutex_);
  written_.insert(number);
}

bool CommonWrites::any() const {
  const std::lock_guard lock(mutex_);
  return !written_.empty();
}

void CommonWrites::publish(Workers& workers) {
  Packer own;
  for (const size_t number : take_written()) own.add(static_cast<int64_t>(number));
  const auto written = workers.exchange("variables that were assigned", own.bytes());
  std::map<size_t, int> writers;  // by number: the lowest rank
  for (size_t rank = 0; rank < written.size(); ++rank)
    for (Unpacker unpacker(written[rank]); !unpacker.at_end();)
      writers.try_emplace(static_cast<size_t>(unpacker.number()), static_cast<int>(rank));
  for (const auto& [number, rank] : writers)
    if (const auto memory = find(number); memory != nullptr && rank == workers.rank())
      memory->publish();
  workers.exchange("the values of variables that were assigned", {});
  for (const auto& [number, rank] : writers)
    if (const auto memory = find(number)) memory->forget_own();
}

std::set<size_t> CommonWrites::take_written() {
  const std::lock_guard lock(mutex_);
  std::set<size_t> written;
  written.swap(written_);
  // What has gone since has nobody to read it here.
  std::erase_if(written, [&](size_t number) { return all_[number].expired(); });
  return written;
}

std::shared_ptr<CommonMemory> CommonWrites::find(size_t number) const {
  const std::lock_guard lock(mutex_);
  return number < all_.size() ? all_[number].lock() : nullptr;
}

}  // namespace cohort
