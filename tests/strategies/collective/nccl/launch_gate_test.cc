#include "strategies/collective/nccl/launch_gate.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace cohort {
namespace {

using std::chrono::milliseconds;

constexpr int kRanks = 4;
constexpr auto kLong = milliseconds(20'000);

// Runs `rank` on a thread for each rank.
template <typename F>
void on_ranks(F rank) {
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) threads.emplace_back([&, r] { rank(r); });
  for (std::thread& thread : threads) thread.join();
}

std::string error_of(
    LaunchGate& gate, std::optional<milliseconds> limit,
    const std::function<void()>& launch = [] {}) {
  try {
    gate.pass("an all-reduce (sum)", limit, launch);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(LaunchGate, LaunchesWhenAllAreThereAndGoesOnWhenAllHaveLaunched) {
  constexpr int kTimes = 50;
  LaunchGate gate(kRanks);
  std::atomic<int> arrived = 0, launched = 0, early = 0, hasty = 0;
  on_ranks([&](int) {
    for (int time = 1; time <= kTimes; ++time) {
      ++arrived;
      EXPECT_EQ(error_of(gate, kLong,
                         [&] {
                           if (arrived < time * kRanks) ++early;
                           ++launched;
                         }),
                "");
      if (launched < time * kRanks) ++hasty;
    }
  });
  EXPECT_EQ(launched, kTimes * kRanks);
  EXPECT_EQ(early, 0);
  EXPECT_EQ(hasty, 0);
}

TEST(LaunchGate, OneRankWaitsForNobody) {
  LaunchGate gate(1);
  int launched = 0;
  for (int time = 0; time < 3; ++time)
    EXPECT_EQ(error_of(gate, std::nullopt, [&] { ++launched; }), "");
  EXPECT_EQ(launched, 3);
}

TEST(LaunchGate, WhatOneLaunchThrowsAllRanksThrow) {
  LaunchGate gate(kRanks);
  std::vector<std::string> errors(kRanks);
  on_ranks([&](int r) {
    errors[static_cast<size_t>(r)] = error_of(gate, kLong, [r] {
      if (r == 2) fail(Code::kUnavailable, "the link is down");
    });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("the link is down"), std::string::npos) << error;
  EXPECT_NE(error_of(gate, kLong).find("the link is down"), std::string::npos) << "for good";
}

TEST(LaunchGate, ClosingFreesWhoWaitsWithTheFirstError) {
  LaunchGate gate(2);
  std::string error;
  std::thread waiting([&] { error = error_of(gate, std::nullopt); });
  gate.close(Error(Code::kAborted, "first"));
  gate.close(Error(Code::kInternal, "second"));
  waiting.join();
  EXPECT_NE(error.find("first"), std::string::npos) << error;
}

TEST(LaunchGate, AMissingRankIsAnErrorAfterTheLimit) {
  LaunchGate gate(2);
  bool launched = false;
  const std::string error = error_of(gate, milliseconds(20), [&] { launched = true; });
  for (const char* part : {"DEADLINE_EXCEEDED", "20 ms", "an all-reduce (sum)"})
    EXPECT_NE(error.find(part), std::string::npos) << error;
  EXPECT_FALSE(launched);
}

}  // namespace
}  // namespace cohort
