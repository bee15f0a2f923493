#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

// The cases that are linked to this test do go by gRPC.
TEST(Grpc, IsHowRequestsTravelHere) {
  TestServer server;
  EXPECT_EQ(server.client()->statistics().sharing_sessions, 0u);
}

}  // namespace
}  // namespace cohort::testing
