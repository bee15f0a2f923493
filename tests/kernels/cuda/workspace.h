#pragma once

#include <cstdint>

#include "core/base/error.h"
#include "core/kernels/common/scratch.h"

namespace cohort {

// Libraries refuse a workspace that is not aligned, and so do simulated ones.
inline void check_workspace(const void* workspace) {
  COHORT_CHECK(reinterpret_cast<uintptr_t>(workspace) % kScratchAlignment == 0);
}

}  // namespace cohort
