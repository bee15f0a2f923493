#include "core/base/threads.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <omp.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "core/base/error.h"

namespace cohort {
namespace {

#if !defined(__SANITIZE_THREAD__)  // under which teams have one thread
// The parts that a team of `threads` takes, or 0 where they do not cover all.
int parts_of_team(int threads) {
  set_num_threads(threads);
  std::atomic<int> parts = 0;
  std::atomic<int64_t> covered = 0;
  parallel_for(1000, 1, [&](int64_t begin, int64_t end) {
    ++parts;
    covered += end - begin;
  });
  return covered == 1000 ? parts.load() : 0;
}

// On a thread that has OpenMP's settings as the process has started with them.
void on_new_thread(const std::function<void()>& body) { std::thread(body).join(); }

TEST(Team, HasTheSizeItIsGivenWhereOpenMPWouldChooseOne) {
  on_new_thread([] {
    const int threads = std::min(omp_get_num_procs() + 1, omp_get_thread_limit());
    omp_set_dynamic(1);
    EXPECT_EQ(parts_of_team(threads), threads);
  });
}

TEST(Team, IsOneWhereOpenMPHasNoLarger) {
  int in_region = 0;
#pragma omp parallel num_threads(2)
#pragma omp single
  {
    const TeamScope team(4);
    in_region = num_threads();
  }
  EXPECT_EQ(in_region, 1);
  on_new_thread([] {
    omp_set_max_active_levels(0);
    EXPECT_EQ(parts_of_team(4), 1);
    EXPECT_EQ(num_threads(), 1);
  });
}

TEST(Team, OfAScopeLeavesTheProgramItsOwnSettings) {
  on_new_thread([] {
    omp_set_num_threads(3);
    omp_set_dynamic(1);
    {
      const TeamScope team(2);
      EXPECT_EQ(num_threads(), std::min(2, largest_team()));
    }
    EXPECT_EQ(omp_get_max_threads(), 3);
    EXPECT_EQ(omp_get_dynamic(), 1);
    EXPECT_THROW(TeamScope(0), Error);
    EXPECT_EQ(omp_get_max_threads(), 3);
  });
}

// Whether a fork of this process finds that `holds`. One that hangs is ended.
bool fork_finds(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);
    ::_exit(holds() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

class Fork : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_GT(parts_of_team(4), 1); }
  void TearDown() override { set_num_threads(threads_); }

 private:
  const int threads_ = num_threads();
};

TEST_F(Fork, OfAThreadWithATeamHasATeamOfOne) {
  EXPECT_TRUE(fork_finds([] { return num_threads() == 1 && parts_of_team(1) == 1; }));
  EXPECT_GT(parts_of_team(4), 1) << "this process has its team still";
}

TEST_F(Fork, OfAThreadWithATeamIsRefusedALargerOne) {
  EXPECT_TRUE(fork_finds([] {
    try {
      set_num_threads(2);
      return false;
    } catch (const Error& error) {
      return error.code() == Code::kFailedPrecondition && parts_of_team(1) == 1;
    }
  }));
}

TEST_F(Fork, MayHaveATeamInANewThread) {
  EXPECT_TRUE(fork_finds([] {
    int parts = 0;
    std::thread([&] { parts = parts_of_team(4); }).join();
    return parts > 1;
  }));
}

TEST_F(Fork, OfAThreadWithoutTeamMayHaveOne) {
  bool found = false;
  std::thread([&] { found = fork_finds([] { return parts_of_team(4) > 1; }); }).join();
  EXPECT_TRUE(found);
}
#endif  // __SANITIZE_THREAD__

}  // namespace
}  // namespace cohort
