#include "strategies/cluster/net/descriptor_reserve.h"

#include <algorithm>
#include <cstdint>
#include <sys/resource.h>

namespace cohort::net {

int first_reserved_descriptor() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1 << 20;
  const auto all = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
  return static_cast<int>(all - std::min<int64_t>(64, all / 4));
}

}  // namespace cohort::net
