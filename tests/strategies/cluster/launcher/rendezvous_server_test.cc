#include "strategies/cluster/launcher/rendezvous_server.h"

#include <chrono>
#include <poll.h>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "tests/testing/eventually.h"
#include "tests/testing/few_descriptors.h"

namespace cohort::launcher {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

  std::vector<std::string> lines_;
  net::Descriptor listener_ = net::listen_on({});
  const net::InternetAddress address_ = net::InternetAddress::of(listener_);
  RendezvousServer server_{std::move(listener_),
                           {.join_timeout = std::chrono::hours(1),
                            .last_call = std::chrono::hours(1),
                            .job_id = "ours",
                            .place = "here"},
                           std::chrono::hours(1),
                           coordination::Security({}, true, process_environment),
                           [this](const std::string& line) { lines_.push_back(line); }};
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
  EXPECT_THAT(lines_, IsEmpty());
}

// In what it says of itself there may be anything.
TEST_F(Rendezvous, TellsItsPeopleOnceWhomItRefusesAndWhy) {
  for (int times = 0; times < 3; ++times) {
    Channel client = connect();
    client.send(Join{.protocol = kProtocol,
                     .job_id = "another",
                     .terms = {},
                     .node = {.name = "host\x1b[31m7", .host = "10.0.0.1", .rank = 7}});
    EXPECT_TRUE(cohort::testing::eventually([&] {
      server_.step();
      client.move();
      return client.receive().has_value();
    }));
  }
  EXPECT_THAT(lines_, ElementsAre("refuses a node at 127.0.0.1: PERMISSION_DENIED: node 7 "
                                  "(host?[31m7) is of another job than here: their --job_id "
                                  "differ"));
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
