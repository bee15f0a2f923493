#include "core/base/start_threads.h"

#include <atomic>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "tests/testing/error_of.h"
#include "tests/testing/few_threads.h"

namespace cohort {
namespace {

using testing::error_of;
using testing::FewThreads;

TEST(StartThreads, GivesEachItsNumber) {
  std::atomic<int> sum = 0;
  std::atomic<bool> stopped = false;
  auto threads = start_threads(
      4, [&](int i) { sum += 1 << i; }, [&](const Error&) { stopped = true; });
  EXPECT_EQ(threads.size(), 4u);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 15);
  EXPECT_FALSE(stopped);
  EXPECT_TRUE(start_threads(0, {}, {}).empty());
}

TEST(StartThreads, EndsThoseThatItHasStartedWhereThereAreNotSoMany) {
  const FewThreads few;
  std::atomic<bool> stopping = false;
  std::atomic<int> started = 0, ended = 0;
  std::string reason;
  const Error error = error_of([&] {
    start_threads(
        FewThreads::kTooMany,
        [&](int) {
          ++started;
          while (!stopping) std::this_thread::yield();
          ++ended;
        },
        [&](const Error& why) {
          reason = why.what();
          stopping = true;
        });
  });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
  EXPECT_EQ(reason, error.what());
  EXPECT_GT(started, 0);
  EXPECT_EQ(ended, started);
}

}  // namespace
}  // namespace cohort
