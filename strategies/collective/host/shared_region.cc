#include "strategies/collective/host/shared_region.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <linux/mman.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace cohort {
namespace {

// Little enough to be reserved between two signals, where these come often.
constexpr size_t kReservedAtOnce = size_t{16} << 20;
// What a page-table entry of the second level maps.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

size_t page_size() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

uintptr_t rounded_up(uintptr_t at, size_t page) { return (at + page - 1) / page * page; }

[[noreturn]] void exhausted(const char* what, size_t bytes) {
  fail(Code::kResourceExhausted, "cannot ", what, " ", bytes,
       " bytes of shared memory: ", std::strerror(errno));
}

// Older kernels give up a reservation, all of it, when a signal comes.
void reserve(int descriptor, size_t bytes) {
  for (size_t begin = 0; begin < bytes;) {
    const size_t step = std::min(kReservedAtOnce, bytes - begin);
    if (fallocate(descriptor, 0, static_cast<off_t>(begin), static_cast<off_t>(step)) == 0)
      begin += step;
    else if (errno != EINTR)
      exhausted("reserve", bytes);
  }
}

// Puts memory that is reserved into huge pages, as far as the system has some. It takes no setting,
// as MADV_HUGEPAGE does for memory that is shared.
void use_huge_pages(char* data, size_t reserved) {
  const size_t whole = reserved / kHugePage * kHugePage;
  if (whole > 0) madvise(data, whole, MADV_COLLAPSE);
}

// An unused range of addresses that begins at a multiple of a huge page; null when there is none.
char* reserve_aligned(size_t bytes) {
  void* range = mmap(nullptr, bytes + kHugePage, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return nullptr;
  const auto begin = reinterpret_cast<uintptr_t>(range);
  const uintptr_t aligned = rounded_up(begin, kHugePage);
  const size_t before = aligned - begin, after = kHugePage - before;
  if (before > 0) munmap(range, before);
  if (after > 0) munmap(reinterpret_cast<void*>(aligned + bytes), after);
  return reinterpret_cast<char*>(aligned);
}

}  // namespace

size_t whole_pages(size_t bytes) {
  return rounded_up(bytes, bytes < kHugePage ? page_size() : kHugePage);
}

PageRange pages_of(uintptr_t begin, size_t bytes) {
  const size_t page = page_size();
  return {begin / page * page, rounded_up(begin + bytes, page)};
}

SharedRegion SharedRegion::create(size_t bytes, size_t reserved, Views views) {
  SharedRegion region;
  region.bytes_ = bytes;
  region.descriptor_ = memfd_create("cohort", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (region.descriptor_ < 0) exhausted("create", bytes);
  if (ftruncate(region.descriptor_, static_cast<off_t>(bytes)) != 0) exhausted("create", bytes);
  if (fcntl(region.descriptor_, F_ADD_SEALS, kSeals) != 0) exhausted("seal", bytes);
  reserve(region.descriptor_, reserved);
  region.map(views);
  use_huge_pages(region.data_, reserved);
  return region;
}

SharedRegion SharedRegion::open(const ProcessIdentity& owner, int descriptor, size_t bytes,
                                Views views) {
  const ProcessWatch watch(owner);
  SharedRegion region;
  const std::string path = str("/proc/", owner.pid, "/fd/", descriptor);
  // Not to be waited for, whatever it is.
  region.descriptor_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (region.descriptor_ < 0) {
    const bool forbidden = errno == EACCES || errno == EPERM;
    fail(forbidden ? Code::kPermissionDenied : Code::kUnavailable, "cannot map memory of process ",
         owner.pid, " (", path, "): ", std::strerror(errno));
  }
  struct stat status {};
  const int seals = fcntl(region.descriptor_, F_GET_SEALS);
  if (fstat(region.descriptor_, &status) != 0 || seals < 0 || (seals & kSeals) != kSeals ||
      status.st_size < 0 || static_cast<size_t>(status.st_size) != bytes || watch.ended())
    fail(Code::kDataLoss, path, " is no shared memory of ", bytes, " bytes");
  region.bytes_ = bytes;
  region.map(views);
  region.close_descriptor();
  return region;
}

SharedRegion::~SharedRegion() {
  for (char* const view : {data_, own_})
    if (view != nullptr) munmap(view, bytes_);
  close_descriptor();
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept { *this = std::move(other); }

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(own_, other.own_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void SharedRegion::close_descriptor() {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

void SharedRegion::begin_write_own() {
  if (mprotect(own_, bytes_, PROT_READ | PROT_WRITE) != 0) exhausted("make copies of", bytes_);
}

void SharedRegion::forget_own() {
  if (own_ == nullptr) return;
  const auto drop = [&] { return madvise(own_, bytes_, MADV_DONTNEED) == 0; };
  // Pages that are locked, as all are after mlockall(), would stay.
  const bool gone = drop() || (munlock(own_, bytes_) == 0 && drop());
  if (!gone || mprotect(own_, bytes_, PROT_READ) != 0) exhausted("let go of copies of", bytes_);
}

void SharedRegion::take_back(size_t offset, size_t bytes) {
  const PageRange pages = pages_of(offset, bytes);
  const size_t begin = pages.begin, end = std::min(pages.end, bytes_), after = offset + bytes;
  void* const memory =
      mmap(nullptr, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exhausted("take back", bytes);
  auto* const fresh = static_cast<char*>(memory);
  std::memcpy(fresh, data_ + begin, offset - begin);
  std::memcpy(fresh + (after - begin), data_ + after, end - after);
  if (mremap(fresh, end - begin, end - begin, MREMAP_MAYMOVE | MREMAP_FIXED, data_ + begin) ==
      MAP_FAILED) {
    munmap(fresh, end - begin);
    exhausted("take back", bytes);
  }
}

void SharedRegion::map(Views views) {
  char* const place = bytes_ >= kHugePage ? reserve_aligned(bytes_) : nullptr;
  void* const memory = mmap(place, bytes_, PROT_READ | PROT_WRITE,
                            MAP_SHARED | (place != nullptr ? MAP_FIXED : 0), descriptor_, 0);
  if (memory == MAP_FAILED) exhausted("map", bytes_);
  data_ = static_cast<char*>(memory);
  if (place != nullptr) madvise(data_, bytes_, MADV_HUGEPAGE);  // advice: it may be refused
  if (views == Views::kShared) return;
  // Linux shows writes of others in the pages of such a view that have not been written there. Of
  // one that may be written, mlockall() and mlock() copy all pages.
  void* const own = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, descriptor_, 0);
  if (own == MAP_FAILED) exhausted("map", bytes_);
  own_ = static_cast<char*>(own);
}

}  // namespace cohort
