#include <array>
#include <poll.h>
#include <sys/socket.h>

#include "strategies/cluster/net/socket.h"
#include "strategies/parameter_server/direct_server.h"
#include "strategies/parameter_server/frame_socket.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/certificates.h"

// Connections without gRPC, which the cases of all transports do not look at.
namespace cohort::testing {
namespace {

using parameter_server::CallerThreads;
using parameter_server::Frame;
using parameter_server::FrameSocket;

ParameterClient client_of(const TestServer& server, Transport transport, const TlsFiles& tls = {}) {
  return ParameterClient(server.address(),
                         {.task = "worker:0",
                          .job_id = "job",
                          .timeout = std::chrono::seconds(20),
                          .transport = transport,
                          .tls = tls},
                         no_environment);
}

std::string word_of(const TestServer& server) {
  const auto offer = upgrade_of(server.address(), "another");
  EXPECT_EQ(offer.socket(), "") << "memory is for the same host";
  return offer.direct_word();
}

// A connection on which no word has been said yet.
std::unique_ptr<FrameSocket> stranger_at(const TestServer& server) {
  const auto address = net::InternetAddress::parse(server.address().text(), "the server");
  auto socket = std::make_unique<FrameSocket>(net::start_connecting(address));
  socket->open(parameter_server::kDirectByte, soon());
  return socket;
}

TEST(Direct, GoesByTlsWhereThereAreCertificates) {
  const Certificates certificates;
  TestServer server({.tls = certificates.files()});
  ParameterClient client = client_of(server, Transport::kDirect, certificates.files());
  const int64_t elements = 1'000'000;
  const TensorSpec spec{DType::kFloat32, {elements}};
  client.create(whole_shard("w", spec), [&] { return Tensor::zeros(spec.dtype, spec.shape); });
  client.push(
      {.shard = "w", .gradient = Tensor::full(spec.dtype, spec.shape, -2), .learning_rate = 1});
  EXPECT_EQ(values_of(fetch(client, whole_shard("w", spec))), std::vector<float>(elements, 2.0f));
  EXPECT_EQ(client.statistics().direct_sessions, 1u);
}

TEST(Direct, ComesBackWithTheServer) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()});
  ParameterClient client = client_of(server, Transport::kDirect);
  const ShardSpec spec = whole_shard("w", {DType::kFloat32, {2}});
  client.create(spec, [] { return floats({0, 0}); });
  for (int life = 0; life < 3; ++life) {
    client.push({.shard = "w", .gradient = floats({-1, -1}), .learning_rate = 1});
    EXPECT_EQ(client.statistics().direct_sessions, 1u);
    server->snapshot();
    server.stop();
    server.start();
  }
  EXPECT_EQ(values_of(fetch(client, spec)), (std::vector<float>{3, 3}));
}

// A client that is turned away still has gRPC.
TEST(Direct, IsNotNeeded) {
  TestServer server({.max_sessions = 1});
  ParameterClient client = client_of(server, Transport::kDirect);
  EXPECT_EQ(client.statistics().direct_sessions, 0u);
  EXPECT_EQ(client.statistics().requests_refused, 0u);
}

// However many there are, who may come is served.
TEST(Direct, StrangersAreNoSessions) {
  TestServer server({.max_sessions = 1});
  std::vector<std::unique_ptr<FrameSocket>> strangers;
  std::vector<pollfd> ends;
  for (int64_t i = 0; i <= CallerThreads::kMaxStrangers; ++i) {
    strangers.push_back(stranger_at(server));
    ends.push_back({.fd = strangers.back()->stream().fd(), .events = POLLIN});
  }
  ASSERT_GT(poll(ends.data(), ends.size(), 20'000), 0) << "one is too many for the others";
  EXPECT_EQ(server->statistics().sessions, 0u);
  EXPECT_EQ(client_of(server, Transport::kGrpc).statistics().sessions, 1u);
}

// Whatever comes to the port, what is served there goes on.
class DirectIntruder : public ::testing::Test {
 protected:
  DirectIntruder() {
    client_.create(whole_shard("w", kFour), [] { return floats({1, 2, 3, 4}); });
  }
  ~DirectIntruder() override {
    EXPECT_EQ(values_of(fetch(client_, whole_shard("w", kFour))), (std::vector<float>{1, 2, 3, 4}));
  }

  std::unique_ptr<FrameSocket> connect() const { return stranger_at(server_); }
  std::unique_ptr<FrameSocket> enter() const {
    auto socket = connect();
    socket->put({.kind = Frame::Kind::kHello}, word_of(server_));
    socket->flush(soon());
    FrameSocket::Incoming welcome;
    socket->get(welcome, soon());
    EXPECT_EQ(welcome.frame.kind, Frame::Kind::kWelcome);
    return socket;
  }
  // What the server ends the connection with.
  static Code end_of(FrameSocket& socket) {
    return error_of([&] {
             for (FrameSocket::Incoming incoming;;) {
               socket.get(incoming, soon());
               if (incoming.frame.kind == Frame::Kind::kError)
                 throw parameter_server::error_in(incoming);
             }
           })
        .code();
  }
  static Code answer(FrameSocket& socket, Frame frame, const std::string& text) {
    socket.put(frame, text);
    EXPECT_EQ(error_of([&] { socket.flush(soon()); }).message(), "no error");
    return end_of(socket);
  }

  TestServer server_;
  ParameterClient client_ = client_of(server_, Transport::kDirect);
};

TEST_F(DirectIntruder, NeedsAWordOfItsOwn) {
  const auto refused = [&](const std::string& word) {
    return answer(*connect(), {.kind = Frame::Kind::kHello}, word);
  };
  const std::string word = word_of(server_);
  EXPECT_EQ(refused(""), Code::kPermissionDenied);
  EXPECT_EQ(refused(std::string(word.size(), 'x')), Code::kPermissionDenied);
  const auto socket = connect();
  socket->put({.kind = Frame::Kind::kHello}, word);
  socket->flush(soon());
  FrameSocket::Incoming welcome;
  socket->get(welcome, soon());
  EXPECT_EQ(welcome.frame.kind, Frame::Kind::kWelcome);
  EXPECT_EQ(refused(word), Code::kPermissionDenied) << "a word holds once";
  EXPECT_EQ(answer(*connect(), {.kind = Frame::Kind::kMessage}, push_header(16)),
            Code::kInvalidArgument);
}

TEST_F(DirectIntruder, IsNotListenedToForLongBeforeItsWord) {
  const auto socket = connect();
  const Frame begin{.kind = Frame::Kind::kMessage, .text_bytes = 1 << 20};
  ASSERT_EQ(send(socket->stream().fd(), &begin, sizeof begin, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof begin));
  EXPECT_EQ(end_of(*socket), Code::kResourceExhausted);
}

TEST_F(DirectIntruder, IsTalkedAboutOnceAMinute) {
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(answer(*connect(), {.kind = Frame::Kind::kHello}, "a guess"),
              Code::kPermissionDenied);
  EXPECT_EQ(server_.lines("refuses a task at 127.0.0.1"), 1);
}

TEST_F(DirectIntruder, IsRefusedWhatDoesNotFit) {
  const auto refused = [&](Frame frame, const std::string& text) {
    return answer(*enter(), frame, text);
  };
  EXPECT_EQ(refused({.kind = Frame::Kind::kMessage, .bytes = 17}, push_header(16)),
            Code::kInvalidArgument);
  EXPECT_EQ(refused({.kind = Frame::Kind::kMessage, .bytes = UINT64_MAX}, push_header(16)),
            Code::kInvalidArgument);
  EXPECT_EQ(refused({.kind = Frame::Kind::kMessage, .bytes = 12}, push_header(12)),
            Code::kInvalidArgument);
  EXPECT_EQ(refused({.kind = Frame::Kind::kMessage}, "rubbish"), Code::kInvalidArgument);
  EXPECT_EQ(refused({.kind = Frame::Kind::kSegment, .bytes = 16}, ""), Code::kInvalidArgument);
  EXPECT_EQ(refused({.kind = static_cast<Frame::Kind>(77)}, ""), Code::kInvalidArgument);
}

TEST_F(DirectIntruder, MayGoInTheMiddleOfAnything) {
  for (size_t length = 0; length < sizeof(Frame) + 40; length += 7) {
    const auto socket = enter();
    socket->put({.kind = Frame::Kind::kMessage, .bytes = 16}, push_header(16));
    const std::array<char, 12> some{};
    socket->flush(soon());
    send(socket->stream().fd(), some.data(), length % some.size(), MSG_NOSIGNAL);
  }
  for (const char byte : {parameter_server::kDirectByte, 'P', '\x16', '\0'}) {
    const auto address = net::InternetAddress::parse(server_.address().text(), "the server");
    FrameSocket socket{net::Stream(net::start_connecting(address))};
    socket.open(byte, soon());
  }
}

}  // namespace
}  // namespace cohort::testing
