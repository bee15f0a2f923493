#include "strategies/collective/host/shared_region.h"

#include <utility>

#include <gtest/gtest.h>

namespace cohort {
namespace {

TEST(SharedRegion, AViewOfItsOwnShowsWhatAllSeeUntilItIsWritten) {
  const size_t page = whole_pages(1), bytes = 2 * page;
  const auto views = SharedRegion::Views::kSharedAndOwn;
  const SharedRegion first = SharedRegion::create(bytes, bytes, views);
  SharedRegion second = SharedRegion::open(this_process(), first.descriptor(), bytes, views);
  first.data()[0] = 'a';
  EXPECT_EQ(second.own()[0], 'a');
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

TEST(SharedRegion, HasOneViewUnlessAskedForAnother) {
  SharedRegion region = SharedRegion::create(1, 1);
  EXPECT_EQ(region.own(), nullptr);
  region.forget_own();
  SharedRegion moved = std::move(region);
  EXPECT_NE(moved.data(), nullptr);
}

TEST(SharedRegion, SizesAreRoundedUpToPages) {
  const size_t page = whole_pages(1);
  EXPECT_EQ(whole_pages(0), 0U);
  EXPECT_EQ(whole_pages(page), page);
  EXPECT_EQ(whole_pages(page + 1), 2 * page);
}

}  // namespace
}  // namespace cohort
