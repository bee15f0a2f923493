#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "strategies/collective/host/process_identity.h"

namespace cohort {

// `bytes`, rounded up to pages: huge ones where it fills one.
size_t whole_pages(size_t bytes);

// Pages, in bytes, as addresses or offsets into what begins with a page.
struct PageRange {
  uintptr_t begin, end;
};
// Those in which `bytes` from `begin` on lie.
PageRange pages_of(uintptr_t begin, size_t bytes);

// Memory that processes of one host map together. It has no name: it is reached through the
// descriptor of a process that has it open, and is gone when nobody maps it any more, however they
// end. Its size is sealed, so that no process can take pages away from under another.
class SharedRegion {
 public:
  SharedRegion() = default;
  // Whether there is an own() beside data().
  enum class Views { kShared, kSharedAndOwn };
  // Zeros. The first `reserved` bytes are claimed now, others when they are touched.
  // kResourceExhausted.
  static SharedRegion create(size_t bytes, size_t reserved, Views views = Views::kShared);
  // Maps what `owner` has under its descriptor. kUnavailable when the owner has ended,
  // kPermissionDenied when it may not be looked at, kDataLoss when that is no region of this size.
  static SharedRegion open(const ProcessIdentity& owner, int descriptor, size_t bytes,
                           Views views = Views::kShared);
  ~SharedRegion();
  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;

  char* data() const { return data_; }  // null for an empty region
  size_t bytes() const { return bytes_; }
  int descriptor() const { return descriptor_; }

  // Another view, in which this process sees what all see, but for the pages that it has written
  // there: of these it has a copy, which nobody else sees. Null without Views::kSharedAndOwn.
  char* own() const { return own_; }
  // From here on it may write there; before, it only reads. kResourceExhausted where the system has
  // no room for copies.
  void begin_write_own();
  // Lets go of these copies: from here on it only reads again. kResourceExhausted where the system
  // does not let it, as of locked memory that it would not unlock.
  void forget_own();

  // Puts pages that only this process sees in place of those in which `bytes` from `offset` on lie:
  // these are zeros then, what else is in the pages stays. kResourceExhausted, and nothing done.
  void take_back(size_t offset, size_t bytes);

  // From here on nobody else can map it.
  void close_descriptor();

 private:
  void map(Views views);

  char *data_ = nullptr, *own_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
};

}  // namespace cohort
