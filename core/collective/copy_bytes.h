#pragma once

#include <cstdint>
#include <cstring>

#include "core/base/threads.h"

namespace cohort {

// A copy by this rank's team; `source` may be `target`.
inline void copy_bytes(const void* source, void* target, int64_t bytes) {
  constexpr int64_t kGrain = int64_t{1} << 17;  // what one thread copies at least
  if (source == target || bytes == 0) return;
  parallel_for(bytes, kGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

}  // namespace cohort
