#include "strategies/cluster/launcher/rendezvous_server.h"

#include <sys/socket.h>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/internet_address.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::launcher {
namespace {

TEST(RendezvousServer, SleepsWhileThereIsNoDescriptorForWhoWantsToConnect) {
  const net::InternetAddress loopback;
  net::Descriptor listener = loopback.socket(SOCK_NONBLOCK);
  ASSERT_EQ(loopback.bind(listener), 0);
  ASSERT_EQ(listen(listener.get(), 1), 0);
  const net::InternetAddress address = net::InternetAddress::of(listener);
  RendezvousServer server(
      std::move(listener),
      {.join_timeout = std::chrono::hours(1), .last_call = std::chrono::hours(1)},
      std::chrono::hours(1), coordination::Security({}, true, process_environment));
  const net::Descriptor client = address.socket();
  const auto watched = [&] {
    std::vector<pollfd> events;
    server.watch(events);
    const int ready = poll(events.data(), events.size(), 0);
    return std::pair(events.size(), ready);
  };
  {
    const testing::FewDescriptors none(0);
    ASSERT_EQ(address.connect(client), 0);
    EXPECT_EQ(watched(), std::pair(size_t{1}, 1));
    server.step();
    EXPECT_EQ(watched(), std::pair(size_t{0}, 0));
  }
  server.step();
  EXPECT_EQ(watched(), std::pair(size_t{2}, 0)) << "the listener, and who has connected";
}

}  // namespace
}  // namespace cohort::launcher
