#include "strategies/parameter_server/memory_budget.h"

#include "core/base/error.h"

namespace cohort::parameter_server {

void MemoryBudget::take(size_t bytes, const std::string& shard) {
  size_t left = left_;
  do {
    if (bytes > left)
      fail(Code::kResourceExhausted, "shard \"", shard, "\" would take ", bytes,
           " bytes more, and ", left, " of the server's ", all_, " are left (max_bytes)");
  } while (!left_.compare_exchange_weak(left, left - bytes));
}

}  // namespace cohort::parameter_server
