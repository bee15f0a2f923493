#include "core/distribute/input_options.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/base/random.h"
#include "tests/testing/error_of.h"

namespace cohort {
namespace {

using Sizes = std::vector<int64_t>;

// The sizes that tf.distribute gives: tests/strategies/tf_distribute_input_cases_test.cc.
TEST(RebatchSizes, OfNoRowsAreNone) { EXPECT_EQ(rebatch_sizes(0, 1, 2, 0), (Sizes{0, 0})); }

TEST(RebatchSizes, SumToTheBatchAlongEachListAndAtEachStep) {
  RandomStream random(5);
  for (int trial = 0; trial < 500; ++trial) {
    const auto batch = static_cast<int64_t>(random.below(40));
    const int pipelines = static_cast<int>(1 + random.below(6));
    const int replicas = static_cast<int>(1 + random.below(6));
    SCOPED_TRACE(::testing::Message() << batch << " rows over " << pipelines << " x " << replicas);
    std::vector<Sizes> lists;
    for (int p = 0; p < pipelines; ++p) {
      lists.push_back(rebatch_sizes(batch, pipelines, replicas, p));
      EXPECT_EQ(std::accumulate(lists[p].begin(), lists[p].end(), int64_t{0}), batch);
      const auto [least, most] = std::minmax_element(lists[p].begin(), lists[p].end());
      EXPECT_LE(*most - *least, 1);
    }
    for (int step = 0; step < pipelines; ++step) {
      int64_t total = 0;
      for (const Sizes& list : lists)
        for (int r = 0; r < replicas; ++r) total += list[step * replicas + r];
      EXPECT_EQ(total, batch) << "step " << step;
    }
  }
}

TEST(RebatchSizes, RefusesPipelinesThatAreNotThere) {
  EXPECT_THROW(rebatch_sizes(4, 2, 1, 2), Error);
  EXPECT_THROW(rebatch_sizes(4, 0, 1, 0), Error);
  EXPECT_THROW(rebatch_sizes(4, 1, 0, 0), Error);
  EXPECT_THROW(rebatch_sizes(-1, 1, 1, 0), Error);
}

TEST(InputContext, DividesABatchThatItsReplicasDivide) {
  const InputContext context{.num_replicas_in_sync = 3};
  EXPECT_EQ(context.get_per_replica_batch_size(12), 4);
  for (const int64_t batch : {7, 0, -3}) {
    try {
      context.get_per_replica_batch_size(batch);
      ADD_FAILURE() << batch << " was divided";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      EXPECT_NE(error.message().find(std::to_string(batch)), std::string::npos);
    }
  }
}

TEST(InputContext, WithoutReplicasDividesNothing) {
  for (const int replicas : {0, -2}) {
    const InputContext context{.num_replicas_in_sync = replicas};
    const Error error = testing::error_of([&] { context.get_per_replica_batch_size(8); });
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(error.message().find(str("num_replicas_in_sync is ", replicas)), std::string::npos);
  }
}

}  // namespace
}  // namespace cohort
