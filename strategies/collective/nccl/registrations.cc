#include "strategies/collective/nccl/registrations.h"

#include <algorithm>

namespace cohort {

std::shared_ptr<Buffer> LentMemory::lend(std::shared_ptr<Buffer> memory) {
  std::shared_ptr<Buffer> lent(memory.get(), [this](Buffer* buffer) { end(*buffer); });
  const std::lock_guard lock(mutex_);
  loans_[static_cast<const char*>(lent->data)] = std::move(memory);
  return lent;
}

std::shared_ptr<Buffer> LentMemory::find(const void* address) const {
  const auto* at = static_cast<const char*>(address);
  const std::lock_guard lock(mutex_);
  auto loan = loans_.upper_bound(at);
  if (loan == loans_.begin()) return nullptr;
  const auto& [begin, memory] = *--loan;
  return at < begin + memory->bytes ? memory : nullptr;
}

// Memory is given back without the lock.
void LentMemory::end(const Buffer& memory) {
  decltype(loans_)::node_type ended;
  const std::lock_guard lock(mutex_);
  ended = loans_.extract(static_cast<const char*>(memory.data));
}

void Registrations::add(const void* address) {
  std::shared_ptr<Buffer> memory = lent_.find(address);
  const auto is_same = [&](const Registration& r) { return r.memory == memory; };
  if (memory == nullptr || std::any_of(registered_.begin(), registered_.end(), is_same)) return;
  void* const handle = register_(*memory);
  registered_.push_back({std::move(memory), handle});
}

void Registrations::remove_unused() {
  std::erase_if(registered_, [&](const Registration& r) {
    const bool is_unused = lent_.find(r.memory->data) == nullptr;
    if (is_unused) deregister_(r.handle);
    return is_unused;
  });
}

void Registrations::remove_all() {
  for (const Registration& r : registered_) deregister_(r.handle);
  registered_.clear();
}

}  // namespace cohort
