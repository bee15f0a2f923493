#include "strategies/collective/host/shared_region.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <linux/mman.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include <gtest/gtest.h>

namespace {

// As older kernels reserve memory while signals come: not much at once, and at the second attempt.
thread_local bool signals_come = false;
constexpr off_t kMuch = off_t{32} << 20;

}  // namespace

extern "C" int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
  thread_local bool has_tried = false;
  has_tried = !has_tried;
  if (signals_come && (bytes > kMuch || has_tried)) {
    errno = EINTR;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fallocate, descriptor, mode, offset, bytes));
}

namespace cohort {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Of the mapping that begins at `memory`: KiB that single entries of the second level map.
int in_huge_pages(const char* memory) {
  std::ifstream file("/proc/self/smaps");
  std::ostringstream begin;
  begin << std::hex << reinterpret_cast<uintptr_t>(memory) << '-';
  const std::string name = "ShmemPmdMapped:";
  bool is_found = false;
  for (std::string line; std::getline(file, line);) {
    is_found = is_found || line.rfind(begin.str(), 0) == 0;
    if (is_found && line.rfind(name, 0) == 0) return std::stoi(line.substr(name.size()));
  }
  return 0;
}

TEST(SharedRegion, AViewOfItsOwnShowsWhatAllSeeUntilItIsWritten) {
  const size_t page = whole_pages(1), bytes = 2 * page;
  const auto views = SharedRegion::Views::kSharedAndOwn;
  const SharedRegion first = SharedRegion::create(bytes, bytes, views);
  SharedRegion second = SharedRegion::open(this_process(), first.descriptor(), bytes, views);
  first.data()[0] = 'a';
  EXPECT_EQ(second.own()[0], 'a');
  second.begin_write_own();
  second.own()[1] = 'b';
  EXPECT_EQ(second.data()[1], '\0');
  EXPECT_EQ(first.own()[1], '\0');
  first.data()[page] = 'c';  // of a page that nobody has written
  EXPECT_EQ(second.own()[page], 'c');
  first.data()[0] = 'd';
  second.forget_own();
  EXPECT_EQ(second.own()[0], 'd');
  EXPECT_EQ(second.own()[1], '\0');
}

TEST(SharedRegion, LockedPagesOfItsOwnShowWhatAllSeeUntilTheyMayBeWritten) {
  const size_t page = whole_pages(1);
  SharedRegion region = SharedRegion::create(page, page, SharedRegion::Views::kSharedAndOwn);
  if (mlock(region.own(), page) != 0) GTEST_SKIP() << "no memory may be locked here";
  region.data()[0] = 'a';
  EXPECT_EQ(region.own()[0], 'a');
  region.begin_write_own();
  region.own()[0] = 'b';
  region.data()[0] = 'c';
  EXPECT_EQ(region.own()[0], 'b');
  region.forget_own();
  EXPECT_EQ(region.own()[0], 'c');
  region.data()[0] = 'd';
  EXPECT_EQ(region.own()[0], 'd');
}

TEST(SharedRegion, WhatIsTakenBackNobodyElseWrites) {
  const size_t page = whole_pages(1), bytes = 4 * page, offset = page - 8, taken = 2 * page;
  SharedRegion region = SharedRegion::create(bytes, bytes);
  const SharedRegion other = SharedRegion::open(this_process(), region.descriptor(), bytes);
  std::memset(region.data(), 'a', bytes);
  region.take_back(offset, taken);
  std::memset(other.data(), 'b', bytes);
  const std::string rest(page - 8, 'a'), zeros(taken, '\0'), shared(page, 'b');
  EXPECT_EQ(std::string(region.data(), bytes), rest + zeros + std::string(8, 'a') + shared);
  EXPECT_EQ(std::string(other.data(), bytes), std::string(bytes, 'b'));
}

TEST(SharedRegion, HasOneViewUnlessAskedForAnother) {
  SharedRegion region = SharedRegion::create(1, 1);
  EXPECT_EQ(region.own(), nullptr);
  region.forget_own();
  SharedRegion moved = std::move(region);
  EXPECT_NE(moved.data(), nullptr);
}

TEST(SharedRegion, IsReservedWholeThoughSignalsCome) {
  const size_t bytes = size_t{36} << 20;
  signals_come = true;
  const SharedRegion region = SharedRegion::create(bytes, bytes);
  signals_come = false;
  struct stat status {};
  ASSERT_EQ(fstat(region.descriptor(), &status), 0);
  EXPECT_GE(static_cast<size_t>(status.st_blocks) * 512, bytes);
}

TEST(SharedRegion, LiesInHugePagesWhereTheSystemHasSome) {
  const size_t bytes = 2 * kHugePage;
  const SharedRegion region = SharedRegion::create(bytes, bytes);
  std::memset(region.data(), 1, bytes);
  if (in_huge_pages(region.data()) > 0) return;
  EXPECT_NE(madvise(region.data(), bytes, MADV_COLLAPSE), 0) << "it could have been";
  GTEST_SKIP() << "no huge pages to be had here";
}

TEST(SharedRegion, SizesAreRoundedUpToPages) {
  const size_t page = whole_pages(1);
  EXPECT_EQ(whole_pages(0), 0U);
  EXPECT_EQ(whole_pages(page), page);
  EXPECT_EQ(whole_pages(page + 1), 2 * page);
  EXPECT_EQ(whole_pages(kHugePage + 1), 2 * kHugePage);
}

}  // namespace
}  // namespace cohort
