#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/collective/conformance.h"
#include "tests/collective/exercise.h"

namespace cohort::testing {
namespace {

Backend backend(std::string name, InProcessReduction reduction) {
  return {std::move(name),
          [=](int size) { return make_in_process_communicators(size, reduction); }};
}
INSTANTIATE_TEST_SUITE_P(InProcess, CommunicatorConformanceTest,
                         groups_of({backend("Slices", InProcessReduction::kSlices),
                                    backend("FirstRank", InProcessReduction::kFirstRank)}),
                         group_name);

Segment whole(Tensor& tensor) { return {tensor.raw(), tensor.raw(), tensor.num_elements()}; }

TEST(InProcessCommunicatorTest, AddsInRankOrder) {
  constexpr int kSize = 5;
  constexpr int64_t kCount = 40'001;
  const auto fractions = [](int rank) {
    Tensor data(DType::kFloat32, {kCount});
    for (int64_t i = 0; i < kCount; ++i)
      data.data<float>()[i] = std::sin(static_cast<float>(i * 31 + rank * 17));
    return data;
  };
  Tensor in_order = fractions(0);
  for (int r = 1; r < kSize; ++r) {
    const Tensor other = fractions(r);
    for (int64_t i = 0; i < kCount; ++i) in_order.data<float>()[i] += other.data<float>()[i];
  }
  for (const auto reduction : {InProcessReduction::kSlices, InProcessReduction::kFirstRank})
    on_ranks(
        kSize,
        [&](int rank, Communicator& communicator) {
          Tensor data = fractions(rank);
          const Segment segment = whole(data);
          communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
          EXPECT_EQ(std::memcmp(data.raw(), in_order.raw(), data.bytes()), 0) << "rank " << rank;
        },
        reduction);
}

TEST(InProcessCommunicatorTest, TellsTheObserverWhatMoved) {
  on_ranks(3, [&](int rank, Communicator& communicator) {
    std::vector<std::pair<std::string, int64_t>> seen;
    communicator.set_observer([&](const CommunicationEvent& event) {
      EXPECT_LE(event.begin, event.end);
      seen.emplace_back(event.kind, event.bytes);
    });
    Tensor data = elements(DType::kFloat32, rank, 1, 100);
    const Segment segment = whole(data);
    communicator.wait(
        communicator.start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum));
    communicator.broadcast(data.raw(), data.raw(), 400, 0);
    communicator.barrier();
    const std::vector<std::pair<std::string, int64_t>> expected = {{"AllReduce", 400},
                                                                   {"Broadcast", 400}};
    EXPECT_EQ(seen, expected);
  });
}

TEST(InProcessCommunicatorTest, TwoGroupsWorkAtOnceInOppositeOrder) {
  const auto a = make_in_process_communicators(3), b = make_in_process_communicators(3);
  const auto use = [](Communicator& first, Communicator& second) {
    for (int round = 0; round < 100; ++round) {
      Tensor x = elements(DType::kFloat32, first.rank(), 1, 300), y = x.clone();
      const Segment xs = whole(x), ys = whole(y);
      const int64_t operation = first.start_all_reduce({&xs, 1}, DType::kFloat32, ReduceOp::kSum);
      const int64_t other = second.start_all_reduce({&ys, 1}, DType::kFloat32, ReduceOp::kMax);
      second.wait(other);
      first.wait(operation);
      expect_result(x, combined(DType::kFloat32, ReduceOp::kSum, 3, 1, 300), ReduceOp::kSum, "sum");
      expect_result(y, combined(DType::kFloat32, ReduceOp::kMax, 3, 1, 300), ReduceOp::kMax, "max");
    }
  };
  // The same ranks, on two threads each, which use two groups each in the other order.
  const auto c = make_in_process_communicators(3), d = make_in_process_communicators(3);
  std::thread others([&] {
    on_ranks(c, [&](int rank, Communicator& x) { use(x, *d[static_cast<size_t>(rank)]); });
  });
  on_ranks(b, [&](int rank, Communicator& x) { use(x, *a[static_cast<size_t>(rank)]); });
  others.join();
}

TEST(InProcessCommunicatorTest, AGroupHasARank) {
  EXPECT_EQ(error_of([] { make_in_process_communicators(0); }).code(), Code::kInvalidArgument);
}

TEST(ReduceOpTest, IsNamedInAnyCase) {
  for (const ReduceOp op : kAllOps) EXPECT_EQ(reduce_op_from_name(reduce_op_name(op)), op);
  EXPECT_EQ(reduce_op_from_name("MEAN"), ReduceOp::kMean);
  EXPECT_EQ(
      error_of([] { reduce_op_from_name("avg"); }).message(),
      "\"avg\" is not a reduce op; allowed are sum, mean, min, max, product, bit_and, bit_or, "
      "bit_xor");
}

}  // namespace
}  // namespace cohort::testing
