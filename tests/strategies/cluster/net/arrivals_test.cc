#include "strategies/cluster/net/arrivals.h"

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace cohort::testing {
namespace {

using net::Arrivals;
using net::Descriptor;

constexpr std::chrono::seconds kPlenty(20);
constexpr char kTooMuch = '!';  // who begins with this is one for whom there is no memory

// Callers, and what those have begun with who have arrived.
class ArrivalsTest : public ::testing::Test {
 protected:
  // The caller's end of a new connection, which says this at once.
  Descriptor call(const std::string& text = "") {
    std::array<int, 2> ends{};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    Descriptor caller(ends[0]);
    if (!text.empty()) say(caller, text);
    arrivals_.add(Descriptor(ends[1]));
    return caller;
  }
  static void say(const Descriptor& caller, const std::string& text) {
    EXPECT_EQ(send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Once there are so many.
  std::string first_bytes(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPlenty, [&] { return first_bytes_.size() >= count; }));
    return first_bytes_;
  }
  static bool is_hung_up_on(const Descriptor& caller) {
    pollfd polled{caller.get(), POLLIN, 0};
    char byte = 0;
    return poll(&polled, 1, 20'000) == 1 && read(caller.get(), &byte, 1) == 0;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string first_bytes_;
  Arrivals arrivals_{[this](const Descriptor& socket, char first) {
    char byte = 0;
    EXPECT_EQ(read(socket.get(), &byte, 1), 1);
    EXPECT_EQ(byte, first) << "it was still to be read";
    if (first == kTooMuch) throw std::bad_alloc();
    const std::lock_guard lock(mutex_);
    first_bytes_ += first;
    changed_.notify_all();
  }};
};

TEST_F(ArrivalsTest, ComeByTheirFirstByteWhoeverIsSilentBesideThem) {
  std::vector<Descriptor> callers;
  for (int i = 0; i < 20; ++i) callers.push_back(call());
  const Descriptor quick = call("quick");
  EXPECT_EQ(first_bytes(1), "q");
  say(callers[7], "late");
  EXPECT_EQ(first_bytes(2), "ql");
  say(callers[0], "first");
  EXPECT_EQ(first_bytes(3), "qlf");
  say(callers[19], "x");
  EXPECT_EQ(first_bytes(4), "qlfx");
}

TEST_F(ArrivalsTest, AreLetGoOfWhenTheyHaveGone) {
  const Descriptor silent = call(), gone = call();
  shutdown(gone.get(), SHUT_WR);
  EXPECT_TRUE(is_hung_up_on(gone));
  say(silent, "s");
  EXPECT_EQ(first_bytes(1), "s");
}

TEST_F(ArrivalsTest, AreHungUpOnWhenTheyStaySilent) {
  const Descriptor first = call(), second = call();
  EXPECT_TRUE(is_hung_up_on(first));
  EXPECT_TRUE(is_hung_up_on(second));
}

TEST_F(ArrivalsTest, GoOnWhereThereIsNoMemoryForOne) {
  const Descriptor silent = call();
  EXPECT_TRUE(is_hung_up_on(call("!")));
  say(silent, "s");
  EXPECT_EQ(first_bytes(1), "s");
}

}  // namespace
}  // namespace cohort::testing
