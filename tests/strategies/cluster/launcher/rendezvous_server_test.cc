#include "strategies/cluster/launcher/rendezvous_server.h"

#include <chrono>
#include <poll.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::launcher {
namespace {

using std::chrono::milliseconds;

class Rendezvous : public ::testing::Test {
 protected:
  Channel connect() const {
    net::Descriptor socket = address_.socket();
    EXPECT_EQ(address_.connect(socket), 0);
    return Channel(net::Stream(std::move(socket)), std::chrono::hours(1));
  }
  // Whether the server hangs up within `time` on who says `message` again and again.
  bool hangs_up_on(Channel& client, const Message& message, milliseconds time) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (client.end().empty() && std::chrono::steady_clock::now() < deadline) {
      client.send(message);
      server_.step();
      client.move();
      while (client.receive()) {
      }
      pollfd answer{client.link().fd(), POLLIN, 0};
      poll(&answer, 1, 10);
    }
    return !client.end().empty();
  }

  net::Descriptor listener_ = net::listen_on({});
  const net::InternetAddress address_ = net::InternetAddress::of(listener_);
  RendezvousServer server_{
      std::move(listener_),
      {.join_timeout = std::chrono::hours(1), .last_call = std::chrono::hours(1), .job_id = "ours"},
      std::chrono::hours(1),
      coordination::Security({}, true, process_environment)};
};

TEST_F(Rendezvous, SleepsWhileThereIsNoDescriptorForWhoWantsToConnect) {
  const net::Descriptor client = address_.socket();
  const auto watched = [&] {
    std::vector<pollfd> events;
    server_.watch(events);
    const int ready = poll(events.data(), events.size(), 0);
    return std::pair(events.size(), ready);
  };
  {
    const testing::FewDescriptors none(0);
    ASSERT_EQ(address_.connect(client), 0);
    EXPECT_EQ(watched(), std::pair(size_t{1}, 1));
    server_.step();
    EXPECT_EQ(watched(), std::pair(size_t{0}, 0));
  }
  server_.step();
  EXPECT_EQ(watched(), std::pair(size_t{2}, 0)) << "the listener, and who has connected";
}

TEST_F(Rendezvous, HangsUpAtOnceOnWhoSpeaksAndDoesNotSayWhoItIs) {
  Channel client = connect();
  EXPECT_TRUE(hangs_up_on(client, Ping{}, milliseconds(3000)));
}

// Or it would keep a place from others for ever.
TEST_F(Rendezvous, DoesNotKeepWhoIsRefusedAndGoesOnTalking) {
  Channel client = connect();
  client.send(
      Join{.protocol = kProtocol, .job_id = "another", .terms = {}, .node = {.host = "10.0.0.1"}});
  EXPECT_TRUE(hangs_up_on(client, Ping{}, milliseconds(20'000)));
}

}  // namespace
}  // namespace cohort::launcher
