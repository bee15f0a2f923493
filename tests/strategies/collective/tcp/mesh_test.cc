#include "strategies/collective/tcp/mesh.h"

#include <algorithm>
#include <future>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <thread>

#include <gtest/gtest.h>

#include "strategies/cluster/environment.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::tcp {
namespace {

constexpr std::chrono::seconds kPatience(30);  // far more than anything takes

// Connections that nobody has accepted yet.
uint32_t waiting_at(const net::Descriptor& listener) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  EXPECT_EQ(getsockopt(listener.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes), 0);
  return info.tcpi_unacked;
}

net::Descriptor call(const net::InternetAddress& endpoint) {
  net::Descriptor socket = endpoint.socket();
  EXPECT_EQ(endpoint.connect(socket), 0);
  const timeval patience{kPatience.count(), 0};
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return socket;
}

// Rank 0, which calls nobody, and the test as all others. None of these says a word before rank 0
// has taken up all their calls.
TEST(MeshTest, RanksOfALargeGroupMayAllCallAtOnce) {
  constexpr uint32_t kSize = 40;
  const Token token{1, 2};
  const net::Descriptor listener = net::listen_on({}), elsewhere = net::listen_on({});
  const net::InternetAddress endpoint = net::InternetAddress::of(listener);
  std::vector<net::InternetAddress> ranks(kSize, net::InternetAddress::of(elsewhere));
  ranks[0] = endpoint;
  const coordination::Security security({}, false, process_environment);
  auto meeting = std::async(std::launch::async, [&] {
    return connect_mesh(
        0, token, listener, ranks,
        {.security = security, .silence = kPatience, .deadline = Clock::now() + kPatience});
  });

  std::vector<net::Descriptor> callers;
  for (uint32_t i = 0; i < kChannels * (kSize - 1); ++i) callers.push_back(call(endpoint));
  const auto deadline = Clock::now() + kPatience;
  while (waiting_at(listener) > 0 && Clock::now() < deadline) std::this_thread::yield();
  for (uint32_t i = 0; i < callers.size(); ++i) {
    Hello hello{.token = token,
                .size = kSize,
                .from = 1 + i / kChannels,
                .to = 0,
                .channel = static_cast<Channel>(i % kChannels)};
    seal(hello);
    send(callers[i].get(), &hello, sizeof hello, MSG_NOSIGNAL);
  }
  for (const net::Descriptor& caller : callers) {
    Hello answer;
    ASSERT_EQ(recv(caller.get(), &answer, sizeof answer, MSG_WAITALL), ssize_t{sizeof answer});
    EXPECT_EQ(answer.answer, kLinked);
  }
  for (const auto& channel : meeting.get())
    EXPECT_EQ(std::count_if(channel.begin(), channel.end(),
                            [](const net::Stream& link) { return static_cast<bool>(link); }),
              kSize - 1);
}

}  // namespace
}  // namespace cohort::tcp
