#include "strategies/collective/host/host_rank.h"

#include <cstring>

#include "core/base/error.h"
#include "core/base/threads.h"

namespace cohort {
namespace {

// What one thread copies at least.
constexpr int64_t kCopyGrain = int64_t{1} << 17;

}  // namespace

void copy_bytes(const void* source, void* target, int64_t bytes) {
  if (source == target || bytes == 0) return;
  parallel_for(bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

void refuse_peer(const HostRank& host, int rank) {
  const Error error(Code::kDataLoss,
                    str(host.meeting.name(rank),
                        " names memory that is not there, or not as large as its call says"),
                    host.meeting.peer(rank));
  host.meeting.lose(error);
  throw error;
}

}  // namespace cohort
