#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/coordination/security.h"
#include "tests/strategies/cluster/testing.h"

namespace cohort::testing {
namespace {

using coordination::Security;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string printed_by(const std::function<void()>& f) {
  ::testing::internal::CaptureStderr();
  f();
  return ::testing::internal::GetCapturedStderr();
}

// A test of its own process: it is said once.
TEST(PlainText, BeyondThisHostIsWarnedOfOnce) {
  const Security by_variable({}, false, environment({{"COHORT_ALLOW_PLAINTEXT", "1"}})),
      by_option({}, true, environment({}));
  EXPECT_EQ(printed_by([&] { by_variable.check("of the leader at 127.0.0.1:1", true); }), "");
  EXPECT_THAT(printed_by([&] { by_variable.check("of the leader at 10.0.0.1:1", false); }),
              AllOf(HasSubstr("warning: traffic of the leader at 10.0.0.1:1 is in plain text"),
                    HasSubstr("COHORT_ALLOW_PLAINTEXT=1")));
  EXPECT_EQ(printed_by([&] { by_option.check("of requests to 10.0.0.2:1", false); }), "");
}

}  // namespace
}  // namespace cohort::testing
