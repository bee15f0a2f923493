#include "strategies/parameter_server/clock_table.h"

#include <limits>
#include <set>
#include <string>

#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::ClockTable;
constexpr ClockTable::Time kNow{std::chrono::hours(1)};

TEST(ClockTable, HoldsUpWhoIsTooFarAhead) {
  ClockTable clocks(2, 2, milliseconds(1000));
  for (const char* task : {"a", "b"}) clocks.connected(task, 1, kNow);
  clocks.complete("a", 5, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow)) << "b has not come yet";
  clocks.complete("b", 2, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow));  // 5 - 2 > 2
  EXPECT_EQ(clocks.holding_up(kNow), "b");
  EXPECT_TRUE(clocks.may_start("b", kNow));
  clocks.complete("b", 3, kNow);
  EXPECT_TRUE(clocks.may_start("a", kNow));
}

TEST(ClockTable, ForgetsWhoHasLeftOrGone) {
  ClockTable clocks(1, 2, milliseconds(1000));
  for (const char* task : {"a", "b"}) {
    clocks.connected(task, 1, kNow);
    clocks.complete(task, 0, kNow);
  }
  clocks.complete("a", 4, kNow);
  clocks.disconnected("b", 1, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow + milliseconds(500))) << "b may be back soon";
  EXPECT_TRUE(clocks.may_start("a", kNow + milliseconds(1500)));
  clocks.connected("b", 1, kNow + milliseconds(1500));
  clocks.complete("a", 6, kNow + milliseconds(1500));
  EXPECT_FALSE(clocks.may_start("a", kNow + milliseconds(1500))) << "b is back";
  clocks.leave("b", 1);
  EXPECT_TRUE(clocks.may_start("a", kNow));
}

TEST(ClockTable, WaitsForEachWorkerToComeOnce) {
  ClockTable clocks(1, 3, milliseconds(1000));
  for (const char* task : {"worker:0", "worker:1", "worker:2"}) clocks.connected(task, 1, kNow);
  for (int time = 0; time < 2; ++time) {  // trains twice
    clocks.complete("worker:0", 5, kNow);
    clocks.leave("worker:0", time + 1);
  }
  clocks.complete("worker:1", 5, kNow);
  EXPECT_FALSE(clocks.may_start("worker:1", kNow)) << "worker:2 has not come";
  clocks.leave("worker:2", 1);  // it had nothing to do
  EXPECT_TRUE(clocks.may_start("worker:1", kNow));
}

TEST(ClockTable, DoesNotWaitForWhoDiedBeforeItsFirstStep) {
  ClockTable clocks(1, 2, milliseconds(1000));
  for (const char* task : {"worker:0", "worker:1", "evaluator:0"}) clocks.connected(task, 1, kNow);
  clocks.complete("worker:0", 5, kNow);
  EXPECT_TRUE(clocks.disconnected("evaluator:0", 1, kNow));
  EXPECT_FALSE(clocks.may_start("worker:0", kNow + milliseconds(1500)));
  clocks.connected("worker:1", 1, kNow);
  EXPECT_FALSE(clocks.disconnected("worker:1", 1, kNow)) << "it has another connection";
  EXPECT_TRUE(clocks.disconnected("worker:1", 1, kNow));
  EXPECT_FALSE(clocks.may_start("worker:0", kNow + milliseconds(500)));
  const auto later = kNow + milliseconds(1500);
  EXPECT_TRUE(clocks.may_start("worker:0", later));
  clocks.connected("worker:1", 2, later);
  EXPECT_TRUE(clocks.may_start("worker:0", later)) << "it is back, and has done nothing yet";
  clocks.complete("worker:1", 1, later);
  EXPECT_EQ(clocks.slowest(later), 5);
}

// Two workers at 10, of which b goes then; a is at 1000 when b is back.
class BackInBoundedStaleness : public ::testing::Test {
 protected:
  BackInBoundedStaleness() {
    for (const char* task : {"a", "b"}) clocks_.connected(task, 1, kNow);
    for (const char* task : {"a", "b"}) clocks_.complete(task, 10, kNow);
    clocks_.disconnected("b", 1, kNow);
    clocks_.complete("a", 1000, kLater);
  }
  // That b is where a is now, and that each is held up by the other from there on; `own` is what b
  // has completed by its own count.
  void expect_in_step(int64_t own) {
    EXPECT_EQ(clocks_.completed("b"), 1000);
    clocks_.complete("a", 1004, kLater);
    EXPECT_TRUE(clocks_.may_start("a", kLater));
    clocks_.complete("a", 1005, kLater);
    EXPECT_FALSE(clocks_.may_start("a", kLater)) << "5 steps ahead";
    clocks_.complete("b", own + 1, kLater);
    EXPECT_TRUE(clocks_.may_start("a", kLater));
    clocks_.complete("b", own + 10, kLater);
    EXPECT_FALSE(clocks_.may_start("b", kLater));
    EXPECT_EQ(clocks_.holding_up(kLater), "a");
  }
  static constexpr ClockTable::Time kLater = kNow + milliseconds(1500);
  ClockTable clocks_{4, 2, milliseconds(1000)};
};

TEST_F(BackInBoundedStaleness, AKilledWorkerBeginsWhereTheOthersAre) {
  clocks_.connected("b", 2, kLater);
  EXPECT_TRUE(clocks_.may_start("a", kLater)) << "b has done nothing yet";
  clocks_.complete("b", 505, kLater);
  EXPECT_TRUE(clocks_.may_start("a", kLater));
  expect_in_step(505);
}

TEST_F(BackInBoundedStaleness, AFrozenWorkerGoesOnWhereTheOthersAre) {
  clocks_.connected("b", 1, kLater);
  EXPECT_TRUE(clocks_.may_start("a", kLater)) << "before b's next step, too";
  expect_in_step(10);
}

TEST_F(BackInBoundedStaleness, OneThatIsAheadOfTheOthersIsStillThere) {
  clocks_.complete("b", 1002, kLater);
  clocks_.connected("b", 1, kLater);
  EXPECT_EQ(clocks_.completed("b"), 1002);
}

TEST_F(BackInBoundedStaleness, ACheckpointTakesItBackByAsManySteps) {
  clocks_.connected("b", 1, kLater);
  clocks_.complete("b", 7, kLater);
  EXPECT_EQ(clocks_.completed("b"), 997);
}

// The table of a server that was started again knows who has come, and not how long each was away.
TEST(ClockTable, KeepsWorkersInStepAfterTheServersRestart) {
  ClockTable clocks(4, 2, milliseconds(1000));
  for (const char* task : {"a", "b"}) clocks.saw(task);
  for (const char* task : {"a", "b"}) clocks.connected(task, 1, kNow);
  clocks.complete("b", 11, kNow);
  clocks.complete("a", 1001, kNow);
  EXPECT_TRUE(clocks.may_start("a", kNow));
  clocks.complete("a", 1006, kNow);
  EXPECT_FALSE(clocks.may_start("a", kNow));
}

TEST_F(BackInBoundedStaleness, NoNumberOverflows) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (int i = 0; i < 3; ++i)
    for (const char* task : {"a", "b"})
      for (const int64_t steps : {kMost, int64_t{0}, kMost}) {
        clocks_.leave(task, 1);
        clocks_.connected(task, 1, kLater);
        clocks_.complete(task, steps, kLater);
        EXPECT_GE(clocks_.completed(task), 0);
        clocks_.complete(task, kMost - steps, kLater);
        EXPECT_GE(clocks_.completed(task), 0);
      }
}

// Of synchronous training, by those that have contributed to an update.
class Awaited : public ::testing::Test {
 protected:
  Awaited() {
    for (const char* task : {"a", "b"}) clocks_.connected(task, 1, kNow);
  }
  std::string awaited(const std::set<std::string>& come, ClockTable::Time now = kNow) const {
    const auto has_come = [&](const std::string& task) { return come.contains(task); };
    const std::string names = clocks_.awaited_names(has_come, now);
    EXPECT_EQ(clocks_.awaited(has_come, now) == 0, names.empty());
    return names;
  }
  ClockTable clocks_{0, 2, milliseconds(1000)};
};

TEST_F(Awaited, AreAllUntilTheyLeave) {
  clocks_.complete("a", 0, kNow);
  EXPECT_NE(awaited({"a"}).find("not come yet"), std::string::npos);
  clocks_.complete("b", 0, kNow);
  EXPECT_EQ(awaited({"a"}), "b");
  EXPECT_EQ(awaited({"a", "b"}), "");
  clocks_.leave("b", 1);
  EXPECT_EQ(awaited({"a"}), "");
  EXPECT_EQ(awaited({}), "a");
  clocks_.complete("b", 0, kNow);
  EXPECT_EQ(awaited({"a"}), "b") << "it is back";
}

TEST_F(Awaited, AreThoseBetweenTrainingsOnceTheNextHasBegun) {
  for (const char* task : {"a", "b"}) clocks_.complete(task, 0, kNow);
  clocks_.leave("a", 1);
  clocks_.complete("a", 0, kNow);  // its second training, while b is in the first
  clocks_.leave("b", 1);
  EXPECT_EQ(awaited({"a"}), "b");
  clocks_.disconnected("b", 1, kNow);
  EXPECT_EQ(awaited({"a"}), "") << "it has ended";
}

TEST_F(Awaited, AreNotThoseWhoHaveGoneOrBeganAnew) {
  for (const char* task : {"a", "b"}) clocks_.complete(task, 0, kNow);
  clocks_.disconnected("b", 1, kNow);
  EXPECT_EQ(awaited({"a"}, kNow + milliseconds(500)), "b");
  EXPECT_EQ(awaited({"a"}, kNow + milliseconds(1500)), "");
  EXPECT_TRUE(clocks_.has_gone("b", kNow + milliseconds(1500)));
  clocks_.connected("b", 2, kNow + milliseconds(1500));
  EXPECT_EQ(awaited({"a"}), "") << "a new start, which has done nothing yet";
  EXPECT_FALSE(clocks_.disconnected("b", 1, kNow)) << "a connection of the start before";
  clocks_.complete("b", 0, kNow);
  EXPECT_EQ(awaited({"a"}), "b");
}

TEST_F(Awaited, AreForAWhileThoseOfBeforeTheServersRestart) {
  clocks_.expect("c", kNow + milliseconds(3000));
  clocks_.complete("a", 0, kNow);
  EXPECT_EQ(awaited({"a"}, kNow + milliseconds(2900)), "c");
  EXPECT_EQ(awaited({"a"}, kNow + milliseconds(3100)), "");
  clocks_.connected("c", 7, kNow + milliseconds(9000));
  EXPECT_EQ(awaited({"a"}, kNow + milliseconds(9000)), "c") << "it has come back";
}

}  // namespace
}  // namespace cohort::testing
