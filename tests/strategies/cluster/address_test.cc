#include "strategies/cluster/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategies/cluster/testing.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Address, ReadsHostAndPort) {
  const Address address = Address::parse("worker-0.example.com:2222");
  EXPECT_EQ(address.host(), "worker-0.example.com");
  EXPECT_EQ(address.port(), 2222);
  EXPECT_EQ(address.text(), "worker-0.example.com:2222");
}

TEST(Address, TakesEveryKindOfHost) {
  for (const char* text :
       {"localhost:1", "10.0.0.7:65535", "[::1]:80", "[2001:db8::17]:80", "[fe80::1%eth0]:80",
        "[fe80::1%enP2p1s0]:80", "[fe80::1%bond0.100]:80", "[ff::1]:80", "223.255.255.255:80",
        "my_service:80", "a.b.c.:80", "7:80", "3com.net:80"}) {
    EXPECT_EQ(Address::parse(text).text(), text);
  }
}

TEST(Address, EqualHostsAreEqualHoweverWritten) {
  EXPECT_EQ(Address::parse("NODE1:80"), Address::parse("node1:80"));
  EXPECT_EQ(Address::parse("[2001:DB8:0:0::0001]:80"), Address::parse("[2001:db8::1]:80"));
  EXPECT_EQ(Address::parse("[::ffff:10.0.0.1]:80"), Address::parse("10.0.0.1:80"));
  EXPECT_EQ(Address::parse("[::ffff:10.0.0.1]:80").text(), "10.0.0.1:80");
  EXPECT_THROW(Address::parse("[::ffff:10.0.0.1%eth0]:80"), Error);
  EXPECT_NE(Address::parse("node1:80"), Address::parse("node1:81"));
}

TEST(Address, HostAndPortMayBeGivenApart) {
  EXPECT_EQ(Address::of("2001:db8::1", 80).text(), "[2001:db8::1]:80");
  EXPECT_EQ(Address::of("[2001:db8::1]", 80).text(), "[2001:db8::1]:80");
  EXPECT_EQ(Address::of("node1", 80), Address::parse("node1:80"));
  EXPECT_THROW(Address::of("node1", 0), Error);
  EXPECT_THROW(Address::of("node1", 65536), Error);
  EXPECT_THROW(Address::of("", 80), Error);
}

TEST(Address, AHostAloneIsRefusedWithoutAWordOfAPort) {
  const auto refusal = [](const std::string& host) {
    return cohort::testing::refusal([&] { Address::of(host, 80, "HOST"); });
  };
  const std::string expected =
      R"(expected a host name of letters, digits, '-', '_' and '.', an IPv4 address, or an IPv6 address, )"
      R"(without a port, as in "worker0.example.com", "10.0.0.1" or "2001:db8::1")";
  EXPECT_EQ(refusal("h:5"), R"(HOST: found "h:5", which has a port; )" + expected);
  EXPECT_EQ(refusal("10.0.0.1:5"), R"(HOST: found "10.0.0.1:5", which has a port; )" + expected);
  EXPECT_EQ(refusal("h:"), R"(HOST: found "h:", which is no IPv6 address; )" + expected);
  EXPECT_EQ(refusal("1::2::3"), R"(HOST: found "1::2::3", which is no IPv6 address; )" + expected);
  EXPECT_EQ(refusal(" "), R"(HOST: found " "; )" + expected);
}

TEST(Address, RefusesWhatCannotBeReached) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "no port"},
      {"host", "no port"},
      {"[::1]", "no port"},
      {"host:", "from 1 to 65535"},
      {"host:0", "from 1 to 65535"},
      {"host:65536", "from 1 to 65535"},
      {"host:70000", "from 1 to 65535"},
      {"host:-1", "from 1 to 65535"},
      {"host:+1", "from 1 to 65535"},
      {"host:http", "from 1 to 65535"},
      {"host:80 ", "from 1 to 65535"},
      {"host:99999999999999999999", "from 1 to 65535"},
      {":80", "host name"},
      {"::1:80", "brackets"},
      {"grpc://host:80", "several colons"},
      {"[::1:80", "one bracket"},
      {"::1]:80", "one bracket"},
      {"[host]:80", "no IPv6"},
      {"[1::2::3]:80", "no IPv6"},
      {"[:]:80", "no IPv6"},
      {"[fe80::1]:80", "link-local address without a zone"},
      {"[FEBF::2:1]:80", "link-local address without a zone"},
      {"[fe80::1%]:80", "no IPv6"},
      {"[fe80::1%eth0 ]:80", "no IPv6"},
      {"[fe80::1%a-name-of-16-let]:80", "no IPv6"},
      {"256.1.1.1:80", "host name"},
      {"10.0.0:80", "host name"},
      {"a..b:80", "host name"},
      {"-a:80", "host name"},
      {"a b:80", "host name"},
      {std::string(254, 'a') + ":80", "host name"},
      {std::string("a\0b:80", 6), "\\x00"},
      {"0.0.0.0:80", "not be reached"},
      {"[::]:80", "not be reached"},
      {"[::ffff:0.0.0.0]:80", "not be reached"},
      {"[::%eth0]:80", "not be reached"},
      {"0:80", "not be reached"},
      {"0x0:80", "not be reached"},
      {"224.0.0.1:80", "multicast"},
      {"239.255.255.255:80", "multicast"},
      {"3758096385:80", "multicast"},
      {"255.255.255.255:80", "broadcast"},
      {"[ff02::1]:80", "multicast"},
      {"[ff02::1%eth0]:80", "multicast"},
      {"[::ffff:224.0.0.1]:80", "multicast"},
  };
  for (const auto& [address, part] : cases) {
    const std::string& text = address;
    EXPECT_THAT(cohort::testing::refusal([&] { Address::parse(text, "the place"); }),
                AllOf(HasSubstr("the place"), HasSubstr(part)))
        << text;
  }
}

}  // namespace
}  // namespace cohort
