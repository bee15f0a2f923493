#include "strategies/cluster/coordination/endpoint.h"

#include <gtest/gtest.h>

namespace cohort::coordination {
namespace {

TEST(EndpointTest, GrpcGetsItAsAUri) {
  const auto target = [](const char* text) {
    return grpc_target(net::InternetAddress::parse(text, "a test"));
  };
  EXPECT_EQ(target("127.0.0.1:2222"), "ipv4:127.0.0.1:2222");
  EXPECT_EQ(target("[::1]:2222"), "ipv6:[::1]:2222");
  EXPECT_EQ(target("[fe80::1%lo]:2222"), "ipv6:[fe80::1%25lo]:2222");
}

}  // namespace
}  // namespace cohort::coordination
