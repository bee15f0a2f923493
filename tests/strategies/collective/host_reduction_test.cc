#include "strategies/collective/host/host_reduction.h"

#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/part.h"
#include "strategies/collective/host/host_group.h"

namespace cohort {
namespace {

constexpr int kRanks = 8;
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

TEST(HostReduction, OfWhichRanksWantPartsOfManyValuesIsDoneInPlace) {
  constexpr size_t kValues = 20, kElements = 1000;
  const HostGroup group(ControlBlock::create(kRanks),
                        std::vector<HostMember>(kRanks, HostMember{this_process(), 0, ""}),
                        std::nullopt, StallWarning{});
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
    HostReduction& reduction = ranks.emplace_back(std::make_unique<Rank>(group, r))->reduction;
    reduction.set(AllReduceCall{segments, DType::kFloat32, ReduceOp::kSum});
    reduction.announce(group.control.post(r, kTurn));
  }
  for (const auto& rank : ranks) EXPECT_EQ(rank->reduction.choose(kTurn, true), HostPath::kDirect);
}

}  // namespace
}  // namespace cohort
