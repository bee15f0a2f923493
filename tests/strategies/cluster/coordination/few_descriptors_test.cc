#include "tests/testing/few_descriptors.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/coordination/leader_server.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/internet_address.h"
#include "tests/strategies/cluster/coordination/job.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// All numbers that are free here are of the reserve for the rest of the program.
TEST(FewDescriptorsTest, ALeaderSaysWhomItHasNoneFor) {
  const LocalJob job(2);
  const coordination::Roster roster(job.resolver(0));
  const coordination::Security security({}, false, environment({}));
  Lines notices;
  const coordination::LeaderServer server(roster, "job", {}, security, notices.writer());
  const auto leader = net::InternetAddress::parse(job.address(0), "the leader");
  const FewDescriptors few(4);
  const net::Descriptor caller = leader.socket();
  ASSERT_EQ(leader.connect(caller), 0);
  ASSERT_TRUE(eventually([&] { return !notices.text().empty(); }));
  EXPECT_THAT(notices.text(),
              AllOf(HasSubstr("refuses a task at 127.0.0.1"), HasSubstr("RESOURCE_EXHAUSTED"),
                    HasSubstr("ulimit -n"), HasSubstr("each task that is connected takes three")));
}

}  // namespace
}  // namespace cohort::testing
