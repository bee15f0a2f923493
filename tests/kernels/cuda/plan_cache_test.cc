#include "core/kernels/cuda/plan_cache.h"

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace cohort::cuda {
namespace {

using Cache = PlanCache<int, int>;

constexpr Device kGpu{DeviceType::kGpu, 0}, kOther{DeviceType::kGpu, 1};

auto plan(int value) {
  return [value] { return std::make_shared<int>(value); };
}
std::shared_ptr<int> not_made() {
  ADD_FAILURE() << "the plan was there";
  return nullptr;
}

TEST(PlanCache, MakesAPlanOnceForEachProblem) {
  Cache cache(4);
  const auto first = cache.find_or_make(kGpu, 7, plan(70));
  EXPECT_EQ(cache.find_or_make(kGpu, 7, not_made), first);
  EXPECT_EQ(*cache.find_or_make(kGpu, 8, plan(80)), 80);
}

TEST(PlanCache, MakesAPlanForEachDevice) {
  Cache cache(4);
  const auto first = cache.find_or_make(kGpu, 7, plan(70));
  EXPECT_EQ(*cache.find_or_make(kOther, 7, plan(71)), 71);
  EXPECT_EQ(cache.find_or_make(kGpu, 7, not_made), first);
}

TEST(PlanCache, RemembersThatThereIsNoPlan) {
  Cache cache(4);
  EXPECT_EQ(cache.find_or_make(kGpu, 1, [] { return std::shared_ptr<int>(); }), nullptr);
  EXPECT_EQ(cache.find_or_make(kGpu, 1, not_made), nullptr);
}

TEST(PlanCache, ForgetsWhatFailed) {
  Cache cache(4);
  const auto failing = []() -> std::shared_ptr<int> { throw std::runtime_error("no memory"); };
  EXPECT_THROW(cache.find_or_make(kGpu, 1, failing), std::runtime_error);
  EXPECT_EQ(cache.size(), 0u);
  EXPECT_EQ(*cache.find_or_make(kGpu, 1, plan(10)), 10);
}

TEST(PlanCache, ForgetsWhatWasAskedForLongestAgo) {
  Cache cache(2);
  const auto one = cache.find_or_make(kGpu, 1, plan(10));
  cache.find_or_make(kGpu, 2, plan(20));
  cache.find_or_make(kGpu, 1, not_made);
  cache.find_or_make(kGpu, 3, plan(30));  // in the place of 2
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(cache.find_or_make(kGpu, 1, not_made), one);
  EXPECT_EQ(*cache.find_or_make(kGpu, 2, plan(21)), 21);
  EXPECT_EQ(*one, 10);
}

TEST(PlanCache, MakesAPlanOnceForManyThreads) {
  Cache cache(4);
  std::atomic<int> made = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        cache.find_or_make(kGpu, i % 3, [&] { return std::make_shared<int>(++made); });
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(made, 3);
}

}  // namespace
}  // namespace cohort::cuda
