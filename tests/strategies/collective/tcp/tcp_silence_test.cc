// Networks that drop everything, without a word: who waits finds that, and nothing else.
#include <cstring>
#include <future>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <thread>

#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/collective/tcp/frame.h"
#include "tests/strategies/collective/tcp/tcp_group.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tcp::Clock;

// Within which a rank that waits knows, and a busy machine's turns.
constexpr seconds kKnown(4);

// A network of this process alone: a loopback.
class TcpSilence : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    is_alone_ = unshare(CLONE_NEWNET) == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
  }
  void SetUp() override {
    if (!is_alone_) GTEST_SKIP() << "no network of its own: " << std::strerror(errno);
    switch_network(true);
  }
  void TearDown() override {
    if (is_alone_) switch_network(true);
  }

  static void switch_network(bool on) {
    const net::Descriptor socket = net::InternetAddress::parse("127.0.0.1:0", "a test").socket();
    ifreq loopback{};
    std::strcpy(loopback.ifr_name, "lo");
    ASSERT_EQ(ioctl(socket.get(), SIOCGIFFLAGS, &loopback), 0);
    loopback.ifr_flags =
        static_cast<short>(on ? loopback.ifr_flags | IFF_UP : loopback.ifr_flags & ~IFF_UP);
    ASSERT_EQ(ioctl(socket.get(), SIOCSIFFLAGS, &loopback), 0);
  }

  static inline bool is_alone_ = false;
};

// One rank waits in a collective, the other for a message.
TEST_F(TcpSilence, NamesWhoCannotBeReachedToAllWhoWait) {
  std::vector<std::string> told(2);
  Group group(2);
  InMemoryStore store;
  const auto join = [&](int rank) {
    group[static_cast<size_t>(rank)] = make_tcp_communicator(
        store, rank, 2,
        {.tasks = {"worker:0", "worker:1"}, .on_unreachable = [&, rank](const Error& error) {
           told[static_cast<size_t>(rank)] = error.peer();
         }});
  };
  auto other = std::async(std::launch::async, join, 1);
  join(0);
  other.get();
  const auto wait = [&](int rank) {
    char byte;
    const Error error = error_of([&] {
      if (rank == 0) group[0]->barrier();
      if (rank == 1) group[1]->receive(&byte, 1, 0, 3);
    });
    return std::pair(error, Clock::now());
  };
  auto of_0 = std::async(std::launch::async, wait, 0);
  auto of_1 = std::async(std::launch::async, wait, 1);
  EXPECT_EQ(of_0.wait_for(seconds(1)), std::future_status::timeout);
  const auto off = Clock::now();
  switch_network(false);
  for (int rank = 0; rank < 2; ++rank) {
    const auto [error, when] = (rank == 0 ? of_0 : of_1).get();
    EXPECT_LT(when - off, kKnown);
    EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
    EXPECT_EQ(error.peer(), str("worker:", 1 - rank));
    EXPECT_NE(error.message().find(str("cannot be reached from worker:", rank)), std::string::npos)
        << error.message();
    EXPECT_EQ(told[static_cast<size_t>(rank)], str("worker:", 1 - rank));
  }
}

TEST_F(TcpSilence, AnOutageOfAMomentIsNone) {
  const Group group = make_tcp_group(2);
  char byte = 0;
  auto waiting = std::async(std::launch::async, [&] {
    const int64_t message = group[0]->start_receive({&byte, 1, 1, 3});
    group[0]->barrier();
    group[0]->wait(message);
  });
  EXPECT_EQ(waiting.wait_for(seconds(1)), std::future_status::timeout);
  switch_network(false);
  EXPECT_EQ(waiting.wait_for(milliseconds(1500)), std::future_status::timeout);
  switch_network(true);
  const char sent = 7;
  group[1]->send(&sent, 1, 0, 3);
  group[1]->barrier();
  EXPECT_NO_THROW(waiting.get());
  EXPECT_EQ(byte, 7);
}

// What a process does not do says nothing about its host.
TEST_F(TcpSilence, AProcessThatDoesNothingIsNoSilence) {
  const Group group = make_tcp_group(2);
  auto waiting = std::async(std::launch::async, [&] { group[0]->barrier(); });
  EXPECT_EQ(waiting.wait_for(kKnown), std::future_status::timeout);
  group[1]->barrier();
  EXPECT_NO_THROW(waiting.get());
}

TEST_F(TcpSilence, AHostThatCannotBeReachedIsNamedWhileTheGroupForms) {
  InMemoryStore store;
  store.set("tcp/group/1", "10.9.9.9:1000");
  const auto began = Clock::now();
  const Error error = error_of([&] {
    make_tcp_communicator(store, 0, 2,
                          {.allow_plaintext = true,
                           .tasks = {"worker:0", "worker:1"},
                           .join_silence = milliseconds(800)});
  });
  EXPECT_LT(Clock::now() - began, kKnown);
  EXPECT_EQ(error.code(), Code::kUnavailable) << error.what();
  EXPECT_EQ(error.peer(), "worker:1");
  EXPECT_NE(error.message().find("worker:1 (rank 1) at 10.9.9.9:1000 cannot be reached from "
                                 "worker:0 (rank 0) at 127.0.0.1:"),
            std::string::npos)
      << error.message();
}

}  // namespace
}  // namespace cohort::testing
