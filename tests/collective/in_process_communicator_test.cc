#include <cmath>
#include <thread>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"

namespace cohort {
namespace {

// Runs `work(rank, communicator)` on one thread for each rank.
template <typename F>
void on_ranks(int size, F work) {
  const auto group = make_in_process_communicators(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] { work(r, *group[static_cast<size_t>(r)]); });
  for (auto& thread : threads) thread.join();
}

class InProcessCommunicatorTest : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(WorldSizes, InProcessCommunicatorTest,
                         testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST_P(InProcessCommunicatorTest, SumsBucketsOfAnyCountInPlace) {
  const int size = GetParam();
  for (int64_t count : {0, 1, 2, 5, 8, 1000, 100'003}) {
    on_ranks(size, [&](int rank, Communicator& communicator) {
      std::vector<float> a(static_cast<size_t>(count)), b(3, static_cast<float>(rank + 1));
      for (size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<float>(rank * 10 + static_cast<int>(i % 7));
      const Segment segments[] = {{a.data(), a.data(), count}, {b.data(), b.data(), 3}};
      communicator.all_reduce(segments, DType::kFloat32, ReduceOp::kSum);
      for (size_t i = 0; i < a.size(); ++i)
        ASSERT_EQ(a[i],
                  static_cast<float>(10 * size * (size - 1) / 2 + size * static_cast<int>(i % 7)))
            << i;
      for (float x : b) ASSERT_EQ(x, static_cast<float>(size * (size + 1) / 2));
    });
  }
}

TEST_P(InProcessCommunicatorTest, EveryOpHasOneMeaning) {
  const int size = GetParam();
  const std::vector<std::pair<ReduceOp, double>> cases = {
      {ReduceOp::kSum, size * (size + 1) / 2.0},
      {ReduceOp::kMean, (size + 1) / 2.0},
      {ReduceOp::kMin, 1.0},
      {ReduceOp::kMax, size},
      {ReduceOp::kProduct, std::tgamma(size + 1.0)}};
  for (const auto& [op, expected] : cases) {
    on_ranks(size, [&, op = op, expected = expected](int rank, Communicator& communicator) {
      double value = rank + 1;
      const Segment segment{&value, &value, 1};
      communicator.all_reduce({&segment, 1}, DType::kFloat64, op);
      EXPECT_DOUBLE_EQ(value, expected);
    });
  }
}

TEST(InProcessCommunicatorErrorTest, DifferentSizesAreAnErrorOnAllRanks) {
  on_ranks(3, [](int rank, Communicator& communicator) {
    std::vector<float> data(8);
    const Segment segment{data.data(), data.data(), rank == 1 ? 7 : 8};
    try {
      communicator.all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
      ADD_FAILURE() << "rank " << rank << " got a result";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
    }
  });
}

TEST(InProcessCommunicatorErrorTest, AbortFreesWaitingRanksWithTheFirstError) {
  on_ranks(3, [](int rank, Communicator& communicator) {
    if (rank == 2) return communicator.abort(Error(Code::kAborted, "rank 2 gave up"));
    try {
      communicator.barrier();
      ADD_FAILURE() << "the barrier opened without rank 2";
    } catch (const Error& error) {
      EXPECT_EQ(error.message(), "rank 2 gave up");
    }
    EXPECT_THROW(communicator.barrier(), Error) << "a broken group stays broken";
  });
}

}  // namespace
}  // namespace cohort
