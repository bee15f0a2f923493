#include "core/base/cancellation.h"

#include <utility>

#include "core/base/error.h"

namespace cohort {
namespace {

thread_local const std::atomic<bool>* innermost = nullptr;

}  // namespace

CancelScope::CancelScope(const std::atomic<bool>& cancelled)
    : previous_(std::exchange(innermost, &cancelled)) {}

CancelScope::~CancelScope() { innermost = previous_; }

void check_cancelled() {
  if (innermost != nullptr && *innermost) fail(Code::kCancelled, "cancelled");
}

}  // namespace cohort
