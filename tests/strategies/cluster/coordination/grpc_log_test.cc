// What a program wants to be told by gRPC stays as it wants it.
#include <atomic>

#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include "strategies/cluster/coordination/grpc_credentials.h"

namespace cohort::coordination {
namespace {

std::atomic<int> g_lines = 0;
void count(gpr_log_func_args*) { ++g_lines; }

// In a process of its own: gRPC is used for the first time.
TEST(GrpcLog, AFunctionOfTheProgramIsNotReplaced) {
  gpr_set_log_function(count);
  keep_grpc();
  gpr_log(GPR_ERROR, "a mistake");
  EXPECT_EQ(g_lines, 1);
}

}  // namespace
}  // namespace cohort::coordination
