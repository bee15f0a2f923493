#include "strategies/collective/nccl/nccl_steps.h"

#include <cstring>
#include <thread>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"

namespace cohort {
namespace {

using Kind = NcclStep::Kind;
using Floats = std::vector<float>;

// What NCCL does for one step of each rank, of floats and of bytes.
void run_step(const std::vector<NcclStep>& of_ranks) {
  const size_t size = of_ranks.size();
  const NcclStep& first = of_ranks[0];
  const bool reduces = first.kind == Kind::kAllReduce || first.kind == Kind::kReduce ||
                       first.kind == Kind::kReduceScatter;
  const auto count = static_cast<size_t>(first.count);
  const size_t parts = first.kind == Kind::kReduceScatter ? size : 1;
  Floats sums(reduces ? count * parts : 0);
  std::string bytes;
  for (size_t r = 0; r < size; ++r) {
    const NcclStep& s = of_ranks[r];
    ASSERT_EQ(s.kind, first.kind);
    ASSERT_EQ(s.count, first.count);
    ASSERT_EQ(s.root, first.root);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<const float*>(s.source)[i];
    if (first.kind == Kind::kAllGather || static_cast<int>(r) == first.root)
      bytes.append(reduces ? "" : static_cast<const char*>(s.source), reduces ? 0 : count);
  }
  for (size_t r = 0; r < size; ++r) {
    void* target = of_ranks[r].target;
    if (first.kind == Kind::kReduce && static_cast<int>(r) != first.root) continue;
    if (!reduces) std::memcpy(target, bytes.data(), bytes.size());
    if (reduces)
      std::memcpy(target, sums.data() + (parts == 1 ? 0 : r * count), count * sizeof(float));
  }
}

void run_steps(const std::vector<std::vector<NcclStep>>& of_ranks) {
  for (size_t i = 0; i < of_ranks[0].size(); ++i) {
    std::vector<NcclStep> step;
    for (const auto& steps : of_ranks) {
      ASSERT_EQ(steps.size(), of_ranks[0].size());
      step.push_back(steps[i]);
    }
    run_step(step);
  }
}

// Each rank's memory: what it gives, and where its results go.
struct Memory {
  Floats source, target;
};
std::vector<Memory> make_memory(int size) {
  std::vector<Memory> memory(static_cast<size_t>(size));
  for (size_t r = 0; r < memory.size(); ++r) {
    memory[r] = {Floats(64), Floats(64, -1)};
    for (size_t i = 0; i < 64; ++i) memory[r].source[i] = static_cast<float>(r * 100 + i);
  }
  return memory;
}

// The same call by NCCL's steps and by ranks that are threads.
template <typename MakeCall>
void expect_same_as_threads(int size, const MakeCall& make_call) {
  auto by_steps = make_memory(size), by_threads = by_steps;
  std::vector<std::vector<NcclStep>> steps;
  for (int r = 0; r < size; ++r)
    steps.push_back(*nccl_steps(make_call(r, by_steps[static_cast<size_t>(r)]), r));
  run_steps(steps);
  auto ranks = make_in_process_communicators(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      ranks[static_cast<size_t>(r)]->run(make_call(r, by_threads[static_cast<size_t>(r)]));
    });
  for (auto& thread : threads) thread.join();
  for (size_t r = 0; r < by_steps.size(); ++r)
    EXPECT_EQ(by_steps[r].target, by_threads[r].target) << "rank " << r << " of " << size;
}

TEST(NcclSteps, ReduceSegmentsOneByOneInOneGroup) {
  for (const int size : {1, 2, 3, 5}) {
    std::vector<std::vector<Segment>> segments(static_cast<size_t>(size));
    expect_same_as_threads(size, [&](int r, Memory& m) -> Call {
      auto& own = segments[static_cast<size_t>(r)];
      own = {{m.source.data(), m.target.data(), 5},
             {m.source.data() + 5, m.target.data() + 5, 0},
             {m.source.data() + 9, m.target.data() + 20, 7}};
      return AllReduceCall{own, DType::kFloat32, ReduceOp::kSum};
    });
  }
}

TEST(NcclSteps, ScatterPartsOfAnySizes) {
  for (const std::vector<int64_t>& counts :
       {std::vector<int64_t>{4, 4, 4}, {3, 0, 5}, {0, 0, 0}, {9, 9, 8}})
    expect_same_as_threads(3, [&](int, Memory& m) -> Call {
      return ReduceScatterCall{m.source.data(), m.target.data(), counts, DType::kFloat32,
                               ReduceOp::kSum};
    });
}

TEST(NcclSteps, GatherPartsOfAnySizes) {
  for (const std::vector<int64_t>& bytes :
       {std::vector<int64_t>{16, 16, 16}, {12, 0, 40}, {0, 0, 0}, {3, 5, 7}})
    expect_same_as_threads(3, [&](int, Memory& m) -> Call {
      return AllGatherCall{m.source.data(), m.target.data(), bytes};
    });
}

TEST(NcclSteps, CopyFromTheRoot) {
  for (const int root : {0, 2})
    expect_same_as_threads(3, [&](int, Memory& m) -> Call {
      return BroadcastCall{m.source.data(), m.target.data(), 20, root};
    });
}

TEST(NcclSteps, AreNoneForWhatNcclCannotDo) {
  const Segment segment{nullptr, nullptr, 1};
  const std::span<const Segment> one(&segment, 1);
  EXPECT_FALSE(nccl_steps(AllReduceCall{one, DType::kInt32, ReduceOp::kBitAnd}, 0));
  EXPECT_FALSE(nccl_steps(AllReduceCall{one, DType::kInt32, ReduceOp::kMean}, 0));
  EXPECT_FALSE(nccl_steps(AllReduceCall{one, DType::kBool, ReduceOp::kMax}, 0));
  EXPECT_FALSE(nccl_steps(AllReduceCall{one, DType::kFloat32, ReduceOp::kMin}, 0));
  EXPECT_FALSE(nccl_steps(AllReduceCall{one, DType::kBFloat16, ReduceOp::kMax}, 0));
  EXPECT_TRUE(nccl_steps(AllReduceCall{one, DType::kInt64, ReduceOp::kMax}, 0));
  EXPECT_TRUE(nccl_steps(AllReduceCall{one, DType::kBFloat16, ReduceOp::kMean}, 0));
  EXPECT_FALSE(nccl_steps(BarrierCall{}, 0));
  EXPECT_FALSE(nccl_steps(AllToAllCall{}, 0));
}

}  // namespace
}  // namespace cohort
