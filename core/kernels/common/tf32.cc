#include "core/kernels/common/tf32.h"

#include <atomic>

namespace cohort {
namespace {

std::atomic<bool> allowed_now = false;

}  // namespace

void allow_tf32(bool allowed) { allowed_now = allowed; }
bool is_tf32_allowed() { return allowed_now; }

}  // namespace cohort
