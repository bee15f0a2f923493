#include "strategies/parameter_server/buffer_cache.h"

#include <algorithm>
#include <new>
#include <utility>

namespace cohort::parameter_server {
namespace {

// Sizes that differ little share memory.
size_t rounded(size_t bytes) {
  constexpr size_t kStep = 4096;
  return (bytes + kStep - 1) / kStep * kStep;
}

}  // namespace

std::shared_ptr<Buffer> BufferCache::take(size_t bytes) {
  bytes = rounded(bytes);
  std::shared_ptr<Buffer> kept;
  {
    const std::lock_guard lock(state_->mutex);
    auto& unused = state_->unused[bytes];
    if (!unused.empty()) {
      kept = std::move(unused.back());
      unused.pop_back();
      state_->bytes -= bytes;
    }
  }
  if (kept == nullptr) kept = allocate_host_buffer(bytes);
  Buffer* buffer = kept.get();
  return {buffer, [state = state_, kept = std::move(kept), bytes](Buffer*) mutable {
            const std::lock_guard lock(state->mutex);
            if (bytes > state->max_bytes - std::min(state->max_bytes, state->bytes)) return;
            try {
              state->unused[bytes].push_back(std::move(kept));
              state->bytes += bytes;
            } catch (const std::bad_alloc&) {  // it is given back instead
            }
          }};
}

}  // namespace cohort::parameter_server
