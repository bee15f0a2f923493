#include "strategies/collective/nccl/operation_watch.h"

#include <atomic>

#include <gtest/gtest.h>

namespace cohort {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kDeadline{20};

// What a watch is told about, and how often it ended everything.
struct Group {
  std::atomic<bool> is_done = false, has_error = false;
  std::atomic<int> ended = 0;

  OperationWatch::Options options(std::optional<milliseconds> limit = std::nullopt) {
    return {.limit = limit,
            .interval = milliseconds(1),
            .who = "rank 1 of 2 on gpu:1",
            .find_error = [this]() -> std::optional<Error> {
              if (!has_error) return std::nullopt;
              return Error(Code::kUnavailable, "the link is down");
            },
            .end = [this](const Error&) { ++ended; }};
  }
};

// Returns when a watch has asked so often.
void wait_until_asked(const std::atomic<int>& asked, int times) {
  const auto deadline = OperationWatch::Clock::now() + kDeadline;
  while (asked < times && OperationWatch::Clock::now() < deadline) std::this_thread::yield();
  EXPECT_GE(asked, times);
}

// The error that the watch comes to hold; none before the deadline is a failure.
Error wait_for_error(const OperationWatch& watch) {
  const auto deadline = OperationWatch::Clock::now() + kDeadline;
  while (OperationWatch::Clock::now() < deadline) {
    try {
      watch.check();
    } catch (const Error& error) {
      return error;
    }
    std::this_thread::yield();
  }
  ADD_FAILURE() << "there is no error";
  return Error(Code::kInternal, "");
}

TEST(OperationWatch, EndsWhatTakesLongerThanTheLimit) {
  Group group;
  OperationWatch watch(group.options(milliseconds(30)));
  watch.add("an all-reduce (sum)", [&] { return group.is_done.load(); });
  const Error error = wait_for_error(watch);
  EXPECT_EQ(error.code(), Code::kDeadlineExceeded);
  for (const char* part : {"rank 1 of 2 on gpu:1", "30 ms", "an all-reduce (sum)"})
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  watch.stop();
  EXPECT_EQ(group.ended, 1);
}

// With no time at all, an operation that has begun is overdue at the next look.
TEST(OperationWatch, CountsNoTimeBeforeAnOperationBegins) {
  Group group;
  std::atomic<bool> has_begun = false;
  std::atomic<int> asked = 0;
  OperationWatch watch(group.options(milliseconds(0)));
  watch.add(
      "an all-reduce (sum)", [&] { return group.is_done.load(); },
      [&] {
        ++asked;
        return has_begun.load();
      });
  wait_until_asked(asked, 3);
  EXPECT_NO_THROW(watch.check());
  has_begun = true;
  EXPECT_EQ(wait_for_error(watch).code(), Code::kDeadlineExceeded);
}

TEST(OperationWatch, EndsWhatTakesTooLongBesideWhatHasNotBegun) {
  Group group;
  OperationWatch watch(group.options(milliseconds(0)));
  const auto is_done = [&] { return group.is_done.load(); };
  watch.add("an all-gather", is_done, [] { return false; });
  watch.add("a broadcast", is_done);
  const Error error = wait_for_error(watch);
  EXPECT_NE(error.message().find("a broadcast"), std::string::npos) << error.message();
}

TEST(OperationWatch, WarnsOnceOfEachOperationThatTakesLong) {
  Group group;
  std::mutex mutex;
  std::vector<std::string> lines;
  std::atomic<int> asked = 0;
  OperationWatch::Options options = group.options();
  options.stall = {.after = milliseconds(2), .notice = [&](const std::string& line) {
                     const std::lock_guard lock(mutex);
                     lines.push_back(line);
                   }};
  OperationWatch watch(std::move(options));
  const auto count_lines = [&] {
    const std::lock_guard lock(mutex);
    return lines.size();
  };
  const auto is_done = [&] {
    ++asked;
    return group.is_done.load();
  };
  watch.add("an all-gather", is_done, [] { return false; });
  for (const char* what : {"a broadcast", "an all-reduce (sum)"}) watch.add(what, is_done);
  const auto deadline = OperationWatch::Clock::now() + kDeadline;
  while (count_lines() < 2 && OperationWatch::Clock::now() < deadline) std::this_thread::yield();
  wait_until_asked(asked, asked + 10);
  watch.stop();
  EXPECT_EQ(lines, (std::vector<std::string>{"warning: rank 1 of 2 on gpu:1 has waited for 0.002 s "
                                             "in a broadcast for the other ranks",
                                             "warning: rank 1 of 2 on gpu:1 has waited for 0.002 s "
                                             "in an all-reduce (sum) for the other ranks"}));
  EXPECT_NO_THROW(watch.check());
}

TEST(OperationWatch, LeavesAloneWhatIsDone) {
  Group group;
  OperationWatch watch(group.options(milliseconds(10'000)));
  std::atomic<int> asked = 0;
  for (int i = 0; i < 3; ++i) watch.add("a broadcast", [&] { return ++asked > 5; });
  wait_until_asked(asked, 8);
  EXPECT_NO_THROW(watch.check());
  watch.stop();
  EXPECT_EQ(group.ended, 0);
}

TEST(OperationWatch, FindsWhatTheLibraryFound) {
  Group group;
  OperationWatch watch(group.options());
  watch.add("an all-gather", [&] { return group.is_done.load(); });
  EXPECT_NO_THROW(watch.check());
  group.has_error = true;
  EXPECT_EQ(wait_for_error(watch).code(), Code::kUnavailable);
}

TEST(OperationWatch, KeepsTheFirstError) {
  Group group;
  OperationWatch watch(group.options());
  watch.fail(Error(Code::kAborted, "first"));
  watch.fail(Error(Code::kInternal, "second"));
  EXPECT_EQ(wait_for_error(watch).message(), "first");
  EXPECT_EQ(group.ended, 1);
}

// A call that finds the group ended knows less of the reason than the watch that ended it.
TEST(OperationWatch, ThrowsTheFirstErrorToWhoFindsALaterOne) {
  const auto thrown = [](OperationWatch& watch, const Error& error) {
    try {
      watch.fail_with_first(error);
    } catch (const Error& first) {
      return first.message();
    }
  };
  Group group;
  OperationWatch watch(group.options()), other(group.options());
  watch.fail(Error(Code::kUnavailable, "the link is down"));
  EXPECT_EQ(thrown(watch, Error(Code::kAborted, "the group has ended")), "the link is down");
  EXPECT_EQ(thrown(other, Error(Code::kAborted, "its own")), "its own");
}

}  // namespace
}  // namespace cohort
