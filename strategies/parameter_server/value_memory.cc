#include "strategies/parameter_server/value_memory.h"

#include <algorithm>
#include <new>

#include "strategies/parameter_server/lent_memory.h"
#include "strategies/parameter_server/segments.h"

namespace cohort::parameter_server {
namespace {

// Each block takes a descriptor: they grow, so that there are few.
constexpr size_t kFirstBlock = 16 << 20;
constexpr size_t kShareOfAll = 4;

}  // namespace

ValueMemory::Place ValueMemory::take(size_t bytes) {
  if (bytes < kLentBytes) return {};
  const size_t room = sizeof(ValueGuard) + room_for(bytes);
  const std::lock_guard lock(mutex_);
  if (block_ == nullptr || block_->bytes - used_ < room) {
    block_ = memory_to_lend(std::max({room, kFirstBlock, total_ / kShareOfAll}));
    if (block_ == nullptr) return {};
    total_ += block_->bytes;
    used_ = 0;
  }
  char* const begin = static_cast<char*>(block_->data) + used_;
  used_ += room;
  return {.value = {new Buffer{begin + sizeof(ValueGuard), bytes},
                    [block = block_](Buffer* buffer) { delete buffer; }},
          .guard = new (begin) ValueGuard};
}

}  // namespace cohort::parameter_server
