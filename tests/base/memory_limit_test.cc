#include "core/base/memory_limit.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort {
namespace {

TEST(MemoryLimit, NamesTheLimitThatThereIs) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  if (before.rlim_cur != RLIM_INFINITY) GTEST_SKIP() << "this process has a limit already";
  EXPECT_EQ(memory_limit(), "");
  const rlimit large = {rlim_t{1} << 62, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &large), 0);
  const std::string words = memory_limit();
  EXPECT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(words, str("; this process has a limit of ", large.rlim_cur,
                       " bytes of address space (ulimit -v)"));
}

}  // namespace
}  // namespace cohort
