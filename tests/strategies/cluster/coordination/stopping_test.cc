#include <barrier>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/random.h"
#include "tests/strategies/cluster/coordination/job.h"

// All tasks agree on the step after which they stop.
namespace cohort::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// How many steps a task has done when all stop; `step` is told how many it had done before.
int64_t steps_until_stop(Membership& member, int64_t done,
                         const std::function<void(int64_t done)>& step) {
  while (true) {
    step(done++);
    const auto stop = member.stop_step(done);
    if (stop && done >= *stop) return done;
  }
}

TEST(Stopping, TasksInLockstepStopAfterTheSameStep) {
  constexpr int kSize = 3;
  LocalJob job(kSize);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Lines notices;
    const Members members = join_all(job, {.notice = notices.writer()});
    RandomStream random(seed);
    const int announcer = static_cast<int>(random.below(kSize));
    const auto announced_at = static_cast<int64_t>(random.below(20));
    const auto first = static_cast<int64_t>(random.below(1000));  // as after a restart
    // The collective of each step: nobody gets past it before all have come.
    std::barrier<> all_reduce(kSize);
    std::vector<int64_t> stopped(kSize);
    const auto errors = on_threads(kSize, [&](int rank) {
      stopped[rank] = steps_until_stop(*members[rank], first, [&](int64_t done) {
        if (rank == announcer && done == first + announced_at) members[rank]->announce_stop();
        all_reduce.arrive_and_wait();
      });
      members[rank]->leave();
    });
    EXPECT_THAT(errors, Each(""));
    EXPECT_THAT(stopped, Each(stopped[0]));
    EXPECT_GT(stopped[0], first + announced_at);
  }
}

TEST(Stopping, TasksThatRunFreelyCatchUpWithTheFirst) {
  LocalJob job(3);
  Lines notices;
  const Members members = join_all(job, {.notice = notices.writer()});
  std::vector<int64_t> stopped(3);
  const auto errors = on_threads(3, [&](int rank) {
    stopped[rank] = steps_until_stop(*members[rank], 0, [&](int64_t done) {
      std::this_thread::sleep_for(milliseconds(1 + rank));
      if (rank == 2 && done == 9) members[2]->announce_stop();
    });
    members[rank]->leave();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(stopped, Each(stopped[0]));
}

TEST(Stopping, AFailureReachesWhoAsksForTheStep) {
  LocalJob job(2);
  Lines notices;
  const Members members = join_all(job, {.notice = notices.writer()});
  EXPECT_EQ(members[1]->stop_step(1), std::nullopt);
  members[0]->report(Error(Code::kInternal, "broken"));
  ASSERT_TRUE(eventually([&] { return members[1]->failure().has_value(); }));
  EXPECT_THAT(error_of([&] { members[1]->stop_step(2); }).message(), HasSubstr("broken"));
}

TEST(Stopping, ATaskThatHasDoneItsLastStepDoesNotHoldUpTheOthers) {
  LocalJob job(2);
  Lines notices;
  const Members members = join_all(job, {.notice = notices.writer()});
  std::thread leaving([&] { members[0]->leave(); });
  members[1]->announce_stop();
  std::optional<int64_t> stop;
  int64_t done = 0;
  EXPECT_TRUE(eventually([&] { return (stop = members[1]->stop_step(++done)).has_value(); }));
  EXPECT_GE(*stop, 1);
  members[1]->leave();
  leaving.join();
}

}  // namespace
}  // namespace cohort::testing
