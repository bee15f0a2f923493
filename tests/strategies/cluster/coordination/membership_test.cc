#include "strategies/cluster/coordination/membership.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

TEST(Membership, AllTasksLearnTheSameJobIdAndEpochAndLeaveTogether) {
  LocalJob job(3);
  std::vector<std::string> ids(3);
  std::vector<int64_t> epochs(3);
  std::vector<char> together(3);  // bits would be shared between threads
  const auto errors = on_threads(3, [&](int rank) {
    const auto member = join(job.resolver(rank));
    ids[rank] = member->job_id();
    epochs[rank] = member->epoch();
    EXPECT_EQ(member->rank(), rank);
    EXPECT_EQ(member->size(), 3);
    EXPECT_EQ(member->task_name(2), "worker:2");
    together[rank] = member->leave();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(ids[0].size(), 32u);
  EXPECT_THAT(ids, Each(ids[0]));
  EXPECT_THAT(epochs, Each(3));
  EXPECT_THAT(together, Each(true));
}

TEST(Membership, AnyOrderOfStartingWorks) {
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const auto& order : orders) {
    LocalJob job(3);
    std::vector<std::thread> threads;
    std::atomic<int> left = 0;
    for (const int rank : order) {
      threads.emplace_back([&, rank] { left += join(job.resolver(rank))->leave(); });
      std::this_thread::sleep_for(milliseconds(30));
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(left, 3);
  }
}

TEST(Membership, ValuesReachAllTasks) {
  LocalJob job(3);
  const auto errors = on_threads(3, [&](int rank) {
    const auto member = join(job.resolver(rank));
    KeyValueStore& store = member->store();
    store.set("from " + std::to_string(rank), std::string("\0\xff", 2) + std::to_string(rank));
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(store.get("from " + std::to_string(peer), kPlenty),
                std::string("\0\xff", 2) + std::to_string(peer));
    }
    for (int i = 0; i < 100; ++i) store.add("sum", rank);
    member->barrier("added", kPlenty);
    EXPECT_EQ(store.get("sum", milliseconds(0)), "300");
    member->barrier("read", kPlenty);
    if (rank == 1) store.erase("sum");
    member->barrier("erased", kPlenty);
    EXPECT_THAT(error_of([&] { store.get("sum", milliseconds(0)); }).what(),
                HasSubstr("nobody has set key \"sum\""));
    member->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Membership, AKeyThatNobodySetsTimesOut) {
  LocalJob job(2);
  const Members members = join_all(job);
  const Error error = error_of([&] { members[1]->store().get("step", milliseconds(200)); });
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("\"step\""), HasSubstr("200 ms")));
}

TEST(Membership, OfThoseThatCompareAndSetTheFirstOneWrites) {
  LocalJob job(3);
  std::atomic<int> firsts = 0;
  const auto errors = on_threads(3, [&](int rank) {
    const auto member = join(job.resolver(rank));
    KeyValueStore& store = member->store();
    const std::string self = member->task_name(rank);
    if (store.compare_set("first", std::nullopt, self)) {
      ++firsts;
      EXPECT_EQ(store.find("first"), self);
    }
    EXPECT_NE(store.find("first"), std::nullopt);
    // Nobody's word is lost, and none is there twice.
    for (int i = 0; i < 20; ++i) {
      std::optional<std::string> said;
      do {
        said = store.find("said");
      } while (!store.compare_set("said", said, said.value_or("") + std::to_string(rank)));
    }
    member->barrier("said", kPlenty);
    const std::string said = store.get("said", milliseconds(0));
    for (const char digit : {'0', '1', '2'})
      EXPECT_EQ(std::count(said.begin(), said.end(), digit), 20) << said;
    member->leave();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(firsts, 1);
}

void expect_compares(KeyValueStore& store) {
  EXPECT_EQ(store.find("key"), std::nullopt);
  EXPECT_FALSE(store.compare_set("key", "", "other")) << "no value is not an empty one";
  EXPECT_TRUE(store.compare_set("key", std::nullopt, ""));
  EXPECT_EQ(store.find("key"), "");
  EXPECT_FALSE(store.compare_set("key", std::nullopt, "other"));
  EXPECT_FALSE(store.compare_set("key", "another", "other"));
  EXPECT_TRUE(store.compare_set("key", "", std::string("\0\xff", 2)));
  EXPECT_EQ(store.find("key"), std::string("\0\xff", 2));
  const std::string half(KeyValueStore::kMaxValueBytes / 2, 'v');
  store.set("key", half);
  EXPECT_TRUE(store.compare_set("key", half, half));
  EXPECT_EQ(error_of([&] { store.compare_set("key", half, half + "v"); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store.compare_set("key", std::string(3 << 20, 'v'), ""); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store.compare_set("", std::nullopt, "v"); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(error_of([&] { store.find(std::string(1 << 20, 'k')); }).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(store.find("key"), half);
}

TEST(Membership, ComparesWithNoValueWithAnEmptyOneAndWithAnyBytes) {
  const auto alone = join(LiteralResolver());
  expect_compares(alone->store());
  LocalJob job(2);
  const Members members = join_all(job);
  expect_compares(members[1]->store());
  EXPECT_FALSE(members[1]->failure());
}

TEST(Membership, WhoWaitsForAKeyGetsWhatIsSetByComparing) {
  LocalJob job(2);
  const auto errors = on_threads(2, [&](int rank) {
    const auto member = join(job.resolver(rank));
    if (rank == 0) {
      EXPECT_EQ(member->store().get("key", kPlenty), "value");
    } else {
      EXPECT_TRUE(member->store().compare_set("key", std::nullopt, "value"));
    }
    member->leave();
  });
  EXPECT_THAT(errors, Each(""));
}

TEST(Membership, RefusesValuesBeyondTheLimits) {
  LocalJob job(2);
  const Members members = join_all(job);
  KeyValueStore& store = members[1]->store();
  store.set(std::string(KeyValueStore::kMaxKeyBytes, 'k'),
            std::string(KeyValueStore::kMaxValueBytes, 'v'));
  EXPECT_EQ(store.get(std::string(KeyValueStore::kMaxKeyBytes, 'k'), kPlenty).size(),
            KeyValueStore::kMaxValueBytes);
  EXPECT_THAT(error_of([&] { store.set("", "v"); }).what(), HasSubstr("0 bytes"));
  EXPECT_THAT(error_of([&] { store.set(std::string(1 << 20, 'k'), "v"); }).what(),
              HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(error_of([&] { store.set("k", std::string(3 << 20, 'v')); }).what(),
              HasSubstr("INVALID_ARGUMENT"));
  EXPECT_FALSE(members[1]->failure());
}

TEST(Membership, ABarrierThatTimesOutNamesAllWhoAreMissing) {
  LocalJob job(4);
  const Members members = join_all(job);
  const auto errors = on_threads(2, [&](int rank) {
    members[rank]->barrier("epoch", rank == 0 ? milliseconds(300) : kPlenty);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("DEADLINE_EXCEEDED"), HasSubstr("\"epoch\""),
                             HasSubstr("300 ms"), HasSubstr("worker:2 (" + job.address(2) + ")"),
                             HasSubstr("worker:3"), HasSubstr("2 of 4")));
    EXPECT_THAT(error, ::testing::Not(HasSubstr("worker:1")));
  }
  // Those who come too late learn of it, and the next barrier of that name is a new one.
  for (int rank : {2, 3}) {
    EXPECT_THAT(error_of([&] { members[rank]->barrier("epoch", kPlenty); }).what(),
                HasSubstr("had failed before"));
  }
  EXPECT_THAT(on_threads(4, [&](int rank) { members[rank]->barrier("epoch", kPlenty); }), Each(""));
}

TEST(Membership, EndingWithoutLeaveIsAFailureForTheOthers) {
  for (const int culprit : {0, 1}) {
    LocalJob job(3);
    Members members = join_all(job);
    std::thread waiting([&] {
      const Error error = error_of([&] { members[2]->barrier("never", kPlenty); });
      EXPECT_EQ(error.code(), Code::kUnavailable);
      EXPECT_EQ(error.peer(), "worker:" + std::to_string(culprit));
      EXPECT_THAT(error.message(), HasSubstr("without leave()"));
    });
    members[culprit].reset();
    waiting.join();
    EXPECT_THAT(error_of([&] { members[2]->store().set("k", "v"); }).message(),
                HasSubstr("without leave()"));
    ASSERT_TRUE(eventually([&] { return members[1 - culprit]->failure().has_value(); }));
    EXPECT_EQ(members[1 - culprit]->failure()->peer(), "worker:" + std::to_string(culprit));
  }
}

TEST(Membership, AReportedErrorIsTheCauseEverywhere) {
  LocalJob job(3);
  const Members members = join_all(job);
  std::atomic<int> calls = 0;
  std::vector<FailureWatch> watches;
  for (const auto& member : members) {
    watches.push_back(member->on_failure([&](const Error& error) {
      EXPECT_EQ(error.code(), Code::kResourceExhausted);
      EXPECT_EQ(error.peer(), "worker:1");
      EXPECT_THAT(error.message(), HasSubstr("out of memory"));
      ++calls;
    }));
  }
  const int64_t epoch = members[2]->epoch();
  members[1]->report(Error(Code::kResourceExhausted, "out of memory"));
  members[2]->report(Error(Code::kInternal, "a consequence"));
  EXPECT_TRUE(eventually([&] { return calls == 3; }));
  for (const auto& member : members) {
    ASSERT_TRUE(eventually([&] { return member->failure().has_value(); }));
    EXPECT_THAT(member->failure()->message(), HasSubstr("worker:1 reports: out of memory"));
    EXPECT_EQ(member->epoch(), epoch + 1);
    EXPECT_THAT(error_of([&] { member->leave(); }).message(), HasSubstr("out of memory"));
  }
  EXPECT_EQ(calls, 3);
}

TEST(Membership, ACallbackThatComesLateIsCalledAndOneThatEndedIsNot) {
  LocalJob job(2);
  const Members members = join_all(job);
  std::atomic<int> late = 0, ended = 0;
  {
    const FailureWatch watch = members[0]->on_failure([&](const Error&) { ++ended; });
  }
  members[1]->report(Error(Code::kInternal, "x", "worker:0"));
  ASSERT_TRUE(eventually([&] { return members[0]->failure().has_value(); }));
  EXPECT_EQ(members[0]->failure()->peer(), "worker:0");
  const FailureWatch watch = members[0]->on_failure([&](const Error&) { ++late; });
  EXPECT_TRUE(eventually([&] { return late == 1; }));
  EXPECT_EQ(ended, 0);
}

TEST(Membership, ATaskOnItsOwnNeedsNoNetwork) {
  const auto member = join(LiteralResolver());
  EXPECT_EQ(member->size(), 1);
  member->store().set("k", "v");
  EXPECT_EQ(member->store().get("k", milliseconds(0)), "v");
  member->barrier("alone", milliseconds(0));
  EXPECT_EQ(member->stop_step(3), std::nullopt);
  member->announce_stop();
  EXPECT_EQ(member->stop_step(4), 4);
  EXPECT_TRUE(member->leave());
  EXPECT_THAT(error_of([&] { member->barrier("alone", milliseconds(0)); }).what(),
              HasSubstr("has left"));
}

TEST(Membership, LeaveSaysWhoStays) {
  LocalJob job(3);
  Lines notices;
  Members members = join_all(job, {.notice = notices.writer()});
  EXPECT_FALSE(members[1]->leave(milliseconds(100)));
  EXPECT_TRUE(eventually([&] {
    return notices.has("worker:1: leaves the job") && notices.has("worker:2");
  })) << notices.text();
  members[1].reset();
  // The others go on, but nobody may wait for the one that has left.
  members[2]->store().set("k", "v");
  EXPECT_EQ(members[0]->store().get("k", kPlenty), "v");
  EXPECT_THAT(error_of([&] { members[0]->barrier("b", kPlenty); }).what(),
              HasSubstr("worker:1 has left the job"));
  std::thread other([&] { EXPECT_TRUE(members[2]->leave()); });
  EXPECT_TRUE(members[0]->leave());
  other.join();
}

}  // namespace
}  // namespace cohort::testing
