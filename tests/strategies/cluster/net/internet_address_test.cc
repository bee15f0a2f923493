#include "strategies/cluster/net/internet_address.h"

#include <gtest/gtest.h>

namespace cohort::net {
namespace {

// Ranks tell each other their addresses as texts.
TEST(InternetAddressTest, IsReadBackFromItsText) {
  for (const char* text : {"10.0.0.7:65535", "[::1]:80", "[2001:db8::17]:0", "[fe80::1%lo]:80"})
    EXPECT_EQ(InternetAddress::parse(text, "a test").text(), text);
}

// Without it, nobody can connect to a link-local address.
TEST(InternetAddressTest, AHostHasItsZone) {
  const InternetAddress address = InternetAddress::resolve("fe80::1%lo", 80)[0];
  EXPECT_EQ(address.host(), "fe80::1%lo");
  EXPECT_EQ(address.with_port(81).text(), "[fe80::1%lo]:81");
}

TEST(InternetAddressTest, TheLoopbackCanBeBound) {
  const InternetAddress loopback = InternetAddress::own_loopback();
  EXPECT_TRUE(loopback.is_loopback());
  EXPECT_EQ(loopback.bind(loopback.socket()), 0);
}

}  // namespace
}  // namespace cohort::net
