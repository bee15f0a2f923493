#include "strategies/collective/host/host_reduction.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/part.h"
#include "strategies/collective/host/host_group.h"

namespace cohort {
namespace {

constexpr uint64_t kTurn = 1;

// One of a group whose ranks are threads of this process.
struct Rank {
  Rank(const HostGroup& group, int rank)
      : meeting(group.control, group.peers, rank, group.size(), group.limit, group.stall),
        memory(group, rank),
        reduction(HostRank{group.control, meeting, memory, rank, group.size()}) {}

  SharedMeeting meeting;
  PeerMemory memory;
  HostReduction reduction;
};

std::unique_ptr<HostGroup> group_of(int ranks) {
  return std::make_unique<HostGroup>(
      ControlBlock::create(ranks),
      std::vector<HostMember>(static_cast<size_t>(ranks), HostMember{this_process(), 0, ""}),
      std::nullopt, StallWarning{});
}

TEST(HostReduction, OfWhichRanksWantPartsOfManyValuesIsDoneInPlace) {
  constexpr int kRanks = 8;
  constexpr size_t kValues = 20, kElements = 1000;
  const auto group = group_of(kRanks);
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<float> values(kValues * kElements);  // where they are does not matter
  for (int r = 0; r < kRanks; ++r) {
    std::vector<Segment> segments;
    for (int part = 0; part < kRanks; ++part)
      for (size_t value = 0; value < kValues; ++value) {
        const Part elements = part_of(kElements, part, kRanks);
        float* const at = values.data() + value * kElements + elements.begin;
        segments.push_back({at, part == r ? at : nullptr, elements.size()});
      }
    HostReduction& reduction = ranks.emplace_back(std::make_unique<Rank>(*group, r))->reduction;
    reduction.set(AllReduceCall{segments, DType::kFloat32, ReduceOp::kSum});
    reduction.announce(group->control.post(r, kTurn));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->reduction.choose(kTurn, true), HostPath::kDirect);
}

// The ranks' values lie apart, and are cut in places of their own.
TEST(HostReduction, OfLongSlicesIsDoneByWhoHasTime) {
  constexpr int64_t kElements = 1'500'000, kGap = 10;
  constexpr std::array<int64_t, 2> kCuts = {1'000'001, 130'000};
  const auto group = group_of(2);
  std::array<std::vector<float>, 2> values;
  std::array<std::vector<Segment>, 2> segments;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const size_t r : {0, 1}) {
    values[r].assign(kElements + kGap, static_cast<float>(r + 1));
    float* const at = values[r].data();
    const int64_t cut = kCuts[r], second = cut + kGap;
    segments[r] = {{at, at, cut}, {at + second, at + second, kElements - cut}};
    const int rank = static_cast<int>(r);
    HostReduction& reduction = ranks.emplace_back(std::make_unique<Rank>(*group, rank))->reduction;
    reduction.set(AllReduceCall{segments[r], DType::kFloat32, ReduceOp::kSum});
    reduction.announce(group->control.post(rank, kTurn));
  }
  const auto waiting = [] { return std::string("the other rank"); };
  const auto work = [&](size_t r) { ranks[r]->reduction.work(HostPath::kDirect, kTurn, waiting); };

  std::thread first([&] { work(0); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (group->control.meeting().arrived == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  for (const size_t r : {0, 1})
    for (const Segment& segment : segments[r]) {
      const std::span sums(static_cast<const float*>(segment.target),
                           static_cast<size_t>(segment.count));
      EXPECT_EQ(std::ranges::count(sums, 3.0f), segment.count) << "of rank " << r;
    }
  work(1);
  first.join();
}

}  // namespace
}  // namespace cohort
