#include "strategies/parameter_server/frame_socket.h"

#include <array>
#include <sys/socket.h>

#include "tests/strategies/parameter_server/testing.h"

namespace cohort::testing {
namespace {

using parameter_server::Frame;
using parameter_server::FrameSocket;
using parameter_server::Message;
using parameter_server::Piece;

class FrameSockets : public ::testing::Test {
 protected:
  static std::array<net::Descriptor, 2> pair() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    return {net::Descriptor(ends[0]), net::Descriptor(ends[1])};
  }
  static FrameSocket::Time in(milliseconds time) { return std::chrono::steady_clock::now() + time; }
  // More than the connection holds, which nobody takes: the sender waits for as long as it may.
  static Code send_too_much(FrameSocket& socket) {
    const auto bytes = std::make_shared<std::string>(64 << 20, 'x');
    const Piece piece{.owner = bytes, .data = bytes->data(), .bytes = bytes->size()};
    return error_of([&] {
             socket.send({.header = "header", .payload = {piece}}, in(milliseconds(300)));
           })
        .code();
  }

  std::array<net::Descriptor, 2> ends_ = pair();
  FrameSocket here_{std::move(ends_[0])}, there_{std::move(ends_[1])};
};

// A side that shares memory learns while it sends what it may use again.
TEST_F(FrameSockets, KeepWhatComesWhileTheySend) {
  here_.watch();
  there_.put({.kind = Frame::Kind::kReturn, .number = 7});
  there_.flush(in(milliseconds(20'000)));
  EXPECT_EQ(send_too_much(here_), Code::kDeadlineExceeded);
  FrameSocket::Incoming incoming;
  here_.get(incoming, in(milliseconds(20'000)));
  EXPECT_EQ(incoming.frame.kind, Frame::Kind::kReturn);
  EXPECT_EQ(incoming.frame.number, 7u);
}

// Nor for ever to whom says that it is there, and nothing else.
TEST_F(FrameSockets, ListenToBeatsNoLongerThanTheyMay) {
  const auto listen = [&](FrameSocket::Time deadline) {
    for (int i = 0; i < 3; ++i) there_.put({.kind = Frame::Kind::kBeat});
    there_.put({.kind = Frame::Kind::kHello}, "word");
    there_.flush(in(milliseconds(20'000)));
    FrameSocket::Incoming incoming;
    here_.get(incoming, deadline);
    return incoming.text;
  };
  EXPECT_EQ(listen(in(milliseconds(20'000))), "word");
  EXPECT_ERROR(listen(in(milliseconds(0))), Code::kDeadlineExceeded, "time");
}

TEST_F(FrameSockets, OfCallersHearWhyTheyAreRefusedWhileTheySend) {
  here_.watch();
  here_.hear_refusals();
  there_.put({.kind = Frame::Kind::kBeat});
  there_.refuse(Error(Code::kPermissionDenied, "not you"));
  EXPECT_EQ(send_too_much(here_), Code::kPermissionDenied);
}

}  // namespace
}  // namespace cohort::testing
