#include "tests/testing/few_threads.h"

#include <gtest/gtest.h>

#include "strategies/parameter_server/task_pool.h"
#include "strategies/replica_threads.h"
#include "tests/testing/error_of.h"

// What stands on several threads, in a system that has not so many.
namespace cohort::testing {
namespace {

TEST(TaskPool, IsRefusedWhereThereAreNotSoManyThreads) {
  const FewThreads few;
  const Error error = error_of([] { const parameter_server::TaskPool pool(FewThreads::kTooMany); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

TEST(ReplicaThreads, AreRefusedWhereThereAreNotSoMany) {
  const FewThreads few;
  const Error error = error_of([] { const ReplicaThreads threads(FewThreads::kTooMany); });
  EXPECT_EQ(error.code(), Code::kResourceExhausted) << error.what();
}

}  // namespace
}  // namespace cohort::testing
