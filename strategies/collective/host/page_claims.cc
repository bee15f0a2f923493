#include "strategies/collective/host/page_claims.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "strategies/collective/host/shared_region.h"

namespace cohort {
namespace {

// By holder. Groups are few, and most processes have one: what others have claimed is looked
// through.
class PageClaims {
 public:
  // Lives for ever: groups may outlive everything else.
  static PageClaims& get() {
    static auto* const claims = new PageClaims;
    return *claims;
  }

  bool claim(const void* holder, const void* group, const void* memory, size_t bytes) {
    const PageRange pages = pages_of(reinterpret_cast<uintptr_t>(memory), bytes);
    const std::lock_guard lock(mutex_);
    for (const auto& [other, claimed] : claims_)
      if (claimed.group != group && std::ranges::any_of(claimed.pages, [&](const PageRange& range) {
            return range.begin < pages.end && pages.begin < range.end;
          }))
        return false;
    Claimed& own = claims_[holder];
    own.group = group;
    own.pages.push_back(pages);
    return true;
  }

  void release(const void* holder) {
    const std::lock_guard lock(mutex_);
    claims_.erase(holder);
  }

 private:
  struct Claimed {
    const void* group;
    std::vector<PageRange> pages;
  };

  std::mutex mutex_;
  std::map<const void*, Claimed> claims_;
};

}  // namespace

bool claim_pages(const void* holder, const void* group, const void* memory, size_t bytes) {
  return PageClaims::get().claim(holder, group, memory, bytes);
}

void release_pages(const void* holder) { PageClaims::get().release(holder); }

}  // namespace cohort
