#include "strategies/cluster/net/http2_guard.h"

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/cluster/net/internet_address.h"
#include "tests/strategies/cluster/net/http2_frames.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using net::Descriptor;
using net::Http2Guard;
using net::InternetAddress;

constexpr int kPlentyMilliseconds = 20'000;

// A client's end of a connection by TCP, and what stands for it on the other side of a guard.
class Http2GuardTest : public ::testing::Test {
 protected:
  Http2GuardTest() {
    const InternetAddress any;
    const Descriptor listening = any.socket();
    EXPECT_EQ(any.bind(listening), 0);
    EXPECT_EQ(listen(listening.get(), 1), 0);
    const InternetAddress address = InternetAddress::of(listening);
    client_ = address.socket();
    const timeval patience{.tv_sec = kPlentyMilliseconds / 1000, .tv_usec = 0};
    setsockopt(client_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    EXPECT_EQ(address.connect(client_), 0);
    inner_ = guard_->guard(Descriptor(accept(listening.get(), nullptr, nullptr)));
    EXPECT_TRUE(inner_);
  }

  static bool is_readable(const Descriptor& socket) {
    pollfd polled{socket.get(), POLLIN, 0};
    return poll(&polled, 1, kPlentyMilliseconds) == 1;
  }
  static bool is_writable(const Descriptor& socket, int milliseconds) {
    pollfd polled{socket.get(), POLLOUT, 0};
    return poll(&polled, 1, milliseconds) == 1;
  }
  static void say(const Descriptor& socket, std::string_view text) {
    while (!text.empty()) {
      ASSERT_TRUE(is_writable(socket, kPlentyMilliseconds));
      const ssize_t sent = send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      text.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // So many bytes, or those before the end.
  static std::string hear(const Descriptor& socket, size_t bytes) {
    std::string text(bytes, '\0');
    size_t got = 0;
    while (got < bytes && is_readable(socket)) {
      const ssize_t part = read(socket.get(), &text[got], bytes - got);
      if (part <= 0) break;
      got += static_cast<size_t>(part);
    }
    text.resize(got);
    return text;
  }
  static std::ptrdiff_t open_descriptors() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  }
  static bool has_ended(const Descriptor& socket) {
    char byte = 0;
    return is_readable(socket) && read(socket.get(), &byte, 1) <= 0;
  }

  // Of those that were hung up on: who, and the byte with which each has begun.
  std::vector<std::string> hung_up_on() {
    const std::lock_guard lock(mutex_);
    return hung_up_on_;
  }

  std::mutex mutex_;
  std::vector<std::string> hung_up_on_;
  std::unique_ptr<Http2Guard> guard_ = std::make_unique<Http2Guard>(
      net::Http2Sizes::Limits{.message_bytes = 1 << 20,
                              .messages_bytes = 1 << 21,
                              .header_bytes = 4096,
                              .usual_bytes = 1 << 18},
      [this](const std::optional<InternetAddress>& peer, char first) {
        const std::lock_guard lock(mutex_);
        hung_up_on_.push_back((peer ? peer->text() : "") + " " + first);
      });
  Descriptor client_, inner_;
};

std::string messages(int count) {
  std::string text = std::string(http2::kPreface) + http2::frame(http2::kHeaders, 4, 1, "h");
  for (int i = 0; i < count; ++i)
    text += http2::frame(http2::kData, 0, 1,
                         http2::message_prefix(16'000) + std::string(16'000, static_cast<char>(i)));
  return text;
}

TEST_F(Http2GuardTest, PassesOnAllThatBothSayHoweverMuch) {
  const std::string asked = messages(1000), answered(1 << 23, 'a');
  std::thread asking([&] { say(client_, asked); });
  std::thread answering([&] { say(inner_, answered); });
  std::string heard;
  std::thread hearing([&] { heard = hear(inner_, asked.size()); });
  EXPECT_TRUE(hear(client_, answered.size()) == answered);
  for (std::thread* thread : {&asking, &answering, &hearing}) thread->join();
  EXPECT_TRUE(heard == asked);
}

TEST_F(Http2GuardTest, HangsUpOnWhoSendsTooMuch) {
  const std::string fits = messages(3);
  say(client_, fits);
  EXPECT_TRUE(hear(inner_, fits.size()) == fits);
  say(client_, http2::frame(http2::kData, 0, 1, http2::message_prefix((1 << 20) + 1)));
  EXPECT_TRUE(has_ended(inner_));
  EXPECT_TRUE(has_ended(client_));
}

TEST_F(Http2GuardTest, TellsWhomItHasHungUpOnAndHowHeHasBegun) {
  const std::string who = InternetAddress::of(client_).text();
  say(client_, "T");
  EXPECT_TRUE(has_ended(client_));
  guard_.reset();
  EXPECT_EQ(hung_up_on(), std::vector<std::string>{who + " T"});
}

TEST_F(Http2GuardTest, TellsNothingOfWhoEndsByItself) {
  say(client_, messages(1));
  client_.reset();
  EXPECT_TRUE(hear(inner_, messages(1).size()) == messages(1));
  EXPECT_TRUE(has_ended(inner_));
  inner_.reset();
  guard_.reset();
  EXPECT_TRUE(hung_up_on().empty());
}

TEST_F(Http2GuardTest, TakesItsTimeForALongMessage) {
  std::string call = messages(0) + http2::frame(http2::kData, 0, 1, http2::message_prefix(1 << 20));
  for (int i = 0; i < 64; ++i)
    call += http2::frame(http2::kData, 0, 1, std::string((1 << 20) / 64, static_cast<char>(i)));
  call += http2::frame(http2::kData, 0, 1, http2::message_prefix(5) + "after");
  const auto begin = std::chrono::steady_clock::now();
  std::thread asking([&] { say(client_, call); });
  EXPECT_TRUE(hear(inner_, call.size()) == call);
  asking.join();
  // It cannot be sooner, however late it may be: 16 pieces, of which the first may be double.
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(14));
}

TEST_F(Http2GuardTest, NamesTheClient) {
  sockaddr_un name{};
  socklen_t bytes = sizeof name;
  ASSERT_EQ(getpeername(inner_.get(), reinterpret_cast<sockaddr*>(&name), &bytes), 0);
  EXPECT_EQ(std::string(name.sun_path + 1, bytes - offsetof(sockaddr_un, sun_path) - 1),
            InternetAddress::of(client_).text());
}

TEST_F(Http2GuardTest, EndsBothWaysWhenTheClientHasGoneAndItsLastIsHeard) {
  const std::string last = messages(100);
  std::thread going([&] {
    say(client_, last);
    client_.reset();
  });
  EXPECT_TRUE(hear(inner_, last.size()) == last);
  EXPECT_TRUE(has_ended(inner_));
  going.join();
}

TEST_F(Http2GuardTest, PassesOnTheLastOfAServerThatEnds) {
  const std::string last(150'000, 'l');
  say(inner_, last);
  inner_.reset();
  guard_.reset();
  EXPECT_TRUE(hear(client_, last.size()) == last);
  EXPECT_TRUE(has_ended(client_));
}

TEST_F(Http2GuardTest, HangsUpOnWhoDoesNotTakeTheLastOfAServer) {
  const std::string more(1 << 20, 'm');
  while (send(inner_.get(), more.data(), more.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0 ||
         is_writable(inner_, 200)) {
  }
  const auto connected = open_descriptors();
  inner_.reset();
  EXPECT_TRUE(eventually([&] { return open_descriptors() == connected - 3; }));
}

TEST_F(Http2GuardTest, EndsThoughAServerKeepsItsSocket) {
  guard_.reset();
  EXPECT_TRUE(has_ended(client_));
  EXPECT_TRUE(has_ended(inner_));
}

}  // namespace
}  // namespace cohort::testing
