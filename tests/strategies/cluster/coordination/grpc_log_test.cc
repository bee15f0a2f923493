// What a program wants to be told by gRPC stays as it wants it, and what is printed of it is
// harmless.
#include "strategies/cluster/coordination/grpc_log.h"

#include <algorithm>
#include <atomic>
#include <string>

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

TEST(GrpcLog, WhatAStrangerHasSentIsShownHarmless) {
  limit_grpc_errors();
  ::testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "value=%s", "\x1b[2J\r\ncohort: all is well \x9b\xc2\x9b");
  const std::string printed = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(printed.starts_with("gRPC: value=?[2J??cohort: all is well ??? [")) << printed;
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 1) << printed;
}

}  // namespace
}  // namespace cohort::coordination
