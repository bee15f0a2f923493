#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

// The cases that are linked to this test do go as it says.
TEST(TransportOfTheseTests, IsTheOneAskedFor) {
  TestServer server;
  const ServerStatistics statistics = server.client()->statistics();
  EXPECT_EQ(statistics.sharing_sessions, transport() == Transport::kSharedMemory ? 1u : 0u);
  EXPECT_EQ(statistics.direct_sessions, transport() == Transport::kDirect ? 1u : 0u);
}

}  // namespace
}  // namespace cohort::testing
