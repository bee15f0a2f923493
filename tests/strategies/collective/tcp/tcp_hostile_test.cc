// Whatever a peer that knows the group's token sends, a rank ends its calls with an error or in
// order: it does not crash, hang, or take a frame for what it is not.
#include <atomic>
#include <cstring>
#include <future>
#include <map>
#include <sstream>
#include <sys/socket.h>

#include <gtest/gtest.h>

#include "core/base/random.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/collective/tcp/frame.h"
#include "strategies/collective/tcp/tcp_communicator.h"
#include "tests/collective/ranks.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tcp::Channel;
using tcp::FrameHeader;
using tcp::FrameKind;
using tcp::Hello;

constexpr seconds kPatience(30);  // far more than anything takes
constexpr int64_t kBytes = 1000;  // of a message
constexpr int64_t kCount = 50;    // of a reduction

// Rank 1 of a group of two, in the hands of the test.
class Peer {
 public:
  explicit Peer(KeyValueStore& store)
      : victim_(net::InternetAddress::parse(store.get("tcp/group/0", kPatience), "rank 0")) {
    std::istringstream(store.get("tcp/group/token", kPatience)) >> token_.high >> token_.low;
    store.set("tcp/group/1", "127.0.0.1:9");  // is not called
  }

  Hello hello(Channel channel) const {
    return {.token = token_, .size = 2, .from = 1, .to = 0, .channel = channel};
  }
  // A connection on which something has been said.
  net::Descriptor say(const std::string& bytes) const {
    net::Descriptor socket = victim_.socket();
    EXPECT_EQ(victim_.connect(socket), 0);
    const timeval patience{kPatience.count(), 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    write(socket, bytes);
    return socket;
  }
  void introduce() {
    for (const Channel channel : {Channel::kCollectives, Channel::kMessages, Channel::kControl}) {
      Hello own = hello(channel), answer;
      seal(own);
      net::Descriptor& socket = sockets_[channel] =
          say({reinterpret_cast<const char*>(&own), sizeof own});
      ASSERT_EQ(recv(socket.get(), &answer, sizeof answer, MSG_WAITALL), ssize_t{sizeof answer});
      ASSERT_EQ(answer.answer, tcp::kLinked);
    }
  }
  void send(Channel channel, const std::string& bytes) { write(sockets_[channel], bytes); }
  // Whether the victim sends so many bytes.
  bool hear(Channel channel, size_t bytes) {
    std::vector<char> heard(bytes);
    return recv(sockets_[channel].get(), heard.data(), bytes, MSG_WAITALL) ==
           static_cast<ssize_t>(bytes);
  }
  void say_no_more() {
    for (const auto& [channel, socket] : sockets_) shutdown(socket.get(), SHUT_WR);
  }
  // Until the victim has closed all connections.
  void listen() {
    char heard[4096];
    for (const auto& [channel, socket] : sockets_)
      while (recv(socket.get(), heard, sizeof heard, 0) > 0) {
      }
  }

 private:
  static void write(const net::Descriptor& socket, const std::string& bytes) {
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }

  const net::InternetAddress victim_;
  tcp::Token token_;
  std::map<Channel, net::Descriptor> sockets_;
};

// What rank 0 gets of a reduction, a message to the peer, and one from it.
struct Outcome {
  std::optional<Error> joining, reduction, sending, receiving;
};

// The fingerprint's, of a reduction.
uint64_t reduction_content(int64_t count = kCount) {
  const Segment segment{nullptr, nullptr, count};
  return fingerprint(AllReduceCall{{&segment, 1}, DType::kFloat32, ReduceOp::kSum}, 1).content;
}

std::optional<Error> try_to(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

Outcome be_victim(KeyValueStore& store) {
  Outcome outcome;
  std::vector<float> values(kCount, 1);
  std::vector<char> sent(kBytes, 's'), received(kBytes);
  std::unique_ptr<Communicator> group;
  outcome.joining = try_to([&] {
    group = make_tcp_communicator(store, 0, 2,
                                  {.tasks = {"worker:0", "worker:1"},
                                   .join_timeout = kPatience,
                                   .timeout = milliseconds(3000)});
  });
  if (outcome.joining) return outcome;
  int64_t send = -1, receive = -1;
  outcome.sending = try_to([&] { send = group->start_send({sent.data(), kBytes, 1}); });
  outcome.receiving = try_to([&] { receive = group->start_receive({received.data(), kBytes}); });
  outcome.reduction = try_to([&] {
    const Segment segment{values.data(), values.data(), kCount};
    group->all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
  });
  if (send >= 0) outcome.sending = try_to([&] { group->wait(send); });
  if (receive >= 0) outcome.receiving = try_to([&] { group->wait(receive); });
  return outcome;
}

// What becomes of a rank whose peer does that.
Outcome against(const std::function<void(Peer&)>& peer) {
  InMemoryStore store;
  auto victim = std::async(std::launch::async, [&] { return be_victim(store); });
  Peer hostile(store);
  peer(hostile);
  hostile.say_no_more();
  hostile.listen();
  EXPECT_EQ(victim.wait_for(2 * kPatience), std::future_status::ready);
  return victim.get();
}

std::string bytes_of(FrameHeader header) {
  seal(header);
  return {reinterpret_cast<const char*>(&header), sizeof header};
}

TEST(TcpHostileTest, AFrameOfCollectivesAmongMessagesIsRefused) {
  constexpr auto kUnknown = static_cast<FrameKind>(99);
  for (const FrameKind kind : {FrameKind::kRound, FrameKind::kPart, FrameKind::kContribution,
                               FrameKind::kResult, kUnknown}) {
    // It names the message that the victim sends.
    const Outcome outcome = against([&](Peer& peer) {
      peer.introduce();
      peer.send(Channel::kMessages, bytes_of({.kind = kind, .sequence = 0}));
      peer.listen();  // the victim ends by itself
    });
    ASSERT_TRUE(outcome.sending) << static_cast<int>(kind);
    EXPECT_EQ(outcome.sending->code(), Code::kDataLoss) << outcome.sending->what();
    EXPECT_EQ(outcome.sending->peer(), "worker:1");
  }
}

TEST(TcpHostileTest, AMessageThatWasNotAskedForIsNotTaken) {
  const Outcome outcome = against([&](Peer& peer) {
    peer.introduce();
    peer.send(Channel::kMessages, bytes_of({.kind = FrameKind::kTaken, .sequence = 0}));
    peer.listen();
  });
  ASSERT_TRUE(outcome.sending);
  EXPECT_EQ(outcome.sending->code(), Code::kDataLoss) << outcome.sending->what();
}

void expect_named(const std::optional<Error>& error, const std::string& message) {
  ASSERT_TRUE(error) << message;
  EXPECT_EQ(error->code(), Code::kDataLoss) << error->what();
  EXPECT_EQ(error->message(), message);
  EXPECT_EQ(error->peer(), "worker:1");
}

TEST(TcpHostileTest, WhoSendsWhatDoesNotBelongToACollectiveIsNamed) {
  for (const FrameKind kind : {FrameKind::kRound, FrameKind::kPart, FrameKind::kOffer}) {
    const Outcome outcome = against([&](Peer& peer) {
      peer.introduce();
      peer.send(
          Channel::kCollectives,
          bytes_of({.kind = kind, .sequence = 1, .content = reduction_content(), .index = 9}));
      peer.listen();
    });
    expect_named(outcome.reduction,
                 "worker:1 (rank 1) at 127.0.0.1:9 has sent a frame that nobody expects");
  }
}

TEST(TcpHostileTest, WhoSendsWhatIsNoNoticeIsNamed) {
  const Outcome outcome = against([&](Peer& peer) {
    peer.introduce();
    peer.send(Channel::kControl, std::string(100, 'x'));
    peer.listen();
  });
  expect_named(outcome.reduction,
               "a notice has a wrong header from worker:1 (rank 1) at 127.0.0.1:9");
}

TEST(TcpHostileTest, WhoSpeaksAnotherVersionIsRefusedWithBothNamed) {
  const Outcome outcome = against([](Peer& peer) {
    Hello hello = peer.hello(Channel::kControl);
    hello.version = tcp::kProtocolVersion + 6;
    seal(hello);
    peer.say({reinterpret_cast<const char*>(&hello), sizeof hello});
  });
  ASSERT_TRUE(outcome.joining);
  EXPECT_EQ(outcome.joining->code(), Code::kFailedPrecondition);
  EXPECT_EQ(outcome.joining->message(),
            str("rank 1 speaks version ", tcp::kProtocolVersion + 6,
                " of the protocol, and rank 0 version ", tcp::kProtocolVersion,
                ": all ranks must run the same program"));
}

// --- What could go on for ever

std::string frame_of(FrameHeader header, const std::string& payload) {
  header.length = static_cast<uint32_t>(payload.size());
  return bytes_of(header) + payload;
}

TEST(TcpHostileTest, WhatHasBeenHeardIsNotHeardAgain) {
  const std::string round =
      frame_of({.kind = FrameKind::kRound, .sequence = 1, .content = reduction_content()},
               std::string(kCount * sizeof(float), '\0'));
  const Outcome outcome = against([&](Peer& peer) {
    peer.introduce();
    peer.send(Channel::kCollectives, round + round);
    peer.listen();
  });
  expect_named(outcome.reduction,
               "worker:1 (rank 1) at 127.0.0.1:9 has sent a frame that nobody expects");
}

TEST(TcpHostileTest, PiecesOfAMessageBringSomething) {
  const Outcome outcome = against([&](Peer& peer) {
    peer.introduce();
    peer.send(Channel::kMessages,
              bytes_of({.kind = FrameKind::kOffer, .sequence = 7, .total = kBytes}));
    // What the victim offers, and that it accepts.
    EXPECT_TRUE(peer.hear(Channel::kMessages, 2 * sizeof(FrameHeader)));
    peer.send(Channel::kMessages, bytes_of({.kind = FrameKind::kData, .sequence = 7}));
    peer.listen();
  });
  expect_named(outcome.receiving,
               "worker:1 (rank 1) at 127.0.0.1:9 has sent a frame that nobody expects");
}

// What rank 0 gets in a call while the peer does that.
std::optional<Error> error_in(const std::function<void(Communicator&)>& call,
                              const std::function<void(Peer&, const std::atomic<bool>&)>& peer) {
  InMemoryStore store;
  std::atomic<bool> is_over = false;
  auto victim = std::async(std::launch::async, [&] {
    const auto group = make_tcp_communicator(
        store, 0, 2, {.join_timeout = kPatience, .timeout = milliseconds(1000)});
    auto error = try_to([&] { call(*group); });
    is_over = true;
    return error;
  });
  Peer hostile(store);
  hostile.introduce();
  peer(hostile, is_over);
  return victim.get();
}

TEST(TcpHostileTest, PartsOfACollectiveBringSomething) {
  const uint64_t content = fingerprint(BroadcastCall{nullptr, nullptr, 0, 1}, 1).content;
  const auto error =
      error_in([](Communicator& group) { group.broadcast(nullptr, nullptr, 0, 1); },
               [&](Peer& peer, const std::atomic<bool>&) {
                 peer.send(Channel::kCollectives,
                           bytes_of({.kind = FrameKind::kPart, .sequence = 1, .content = content}));
               });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kDataLoss) << error->what();
}

TEST(TcpHostileTest, NoticesWithoutEndDoNotKeepARankFromItsLimit) {
  std::string notices;
  while (notices.size() < 65'536)
    notices += tcp::encode({.kind = tcp::Notice::Kind::kReport, .sequence = 99, .text = "x"});
  const auto give_up = tcp::Clock::now() + kPatience;
  const auto error = error_in([](Communicator& group) { group.barrier(); },
                              [&](Peer& peer, const std::atomic<bool>& is_over) {
                                while (!is_over && tcp::Clock::now() < give_up)
                                  peer.send(Channel::kControl, notices);
                              });
  EXPECT_LT(tcp::Clock::now(), give_up);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), Code::kDeadlineExceeded) << error->what();
}

// A peer that is frozen, as it were: it has joined a reduction of two slices and has sent its part
// of the victim's slice, which makes the victim join, and does not send the result of its own.
TEST(TcpHostileTest, WhoGoesAwayDoesNotWaitLongForDataThatDoNotCome) {
  constexpr int64_t kLarge = 32'768;
  constexpr size_t kSlice = kLarge / 2 * sizeof(float);
  InMemoryStore store;
  std::promise<void> all_have_joined;
  auto victim = std::async(std::launch::async, [&] {
    std::vector<float> values(kLarge, 1);
    const Segment segment{values.data(), values.data(), kLarge};
    auto group =
        make_tcp_communicator(store, 0, 2, {.join_timeout = kPatience, .timeout = 2 * kPatience});
    group->start_all_reduce({&segment, 1}, DType::kFloat32, ReduceOp::kSum);
    all_have_joined.get_future().wait();
    const auto began = tcp::Clock::now();
    group.reset();
    return tcp::Clock::now() - began;
  });
  Peer peer(store);
  peer.introduce();
  const uint64_t content = reduction_content(kLarge);
  peer.send(Channel::kCollectives,
            bytes_of({.kind = FrameKind::kRound, .sequence = 1, .content = content}) +
                frame_of({.kind = FrameKind::kContribution, .sequence = 1, .content = content},
                         std::string(kSlice, '\0')));
  // Its round, its part of the peer's slice, and the result of its own.
  EXPECT_TRUE(peer.hear(Channel::kCollectives, 3 * sizeof(FrameHeader) + 2 * kSlice));
  all_have_joined.set_value();
  EXPECT_LT(victim.get(), kPatience);
}

// --- Random ones

uint64_t any_number(RandomStream& random, uint64_t usual) {
  const uint64_t choices[] = {usual, 0, 1, usual + 1, 4096, uint64_t{1} << 31, UINT64_MAX};
  return random.below(8) == 7 ? random.below(UINT64_MAX) : choices[random.below(7)];
}

FrameHeader any_frame(RandomStream& random, uint64_t content) {
  FrameHeader frame{.kind = static_cast<FrameKind>(random.below(10)),
                    .sequence = random.below(4) == 0 ? any_number(random, 1) : random.below(3),
                    .content = random.below(4) == 0 ? any_number(random, 0) : content,
                    .index = any_number(random, 0),
                    .total = any_number(random, kBytes)};
  const uint32_t lengths[] = {0, 4, kCount * 4, kBytes, tcp::kMaxPayload, tcp::kMaxPayload + 1};
  if (random.below(2) == 0) frame.length = lengths[random.below(6)];
  if (random.below(8) == 0) frame.flags = static_cast<uint32_t>(random.below(4));
  return frame;
}

void spoil(std::string& bytes, RandomStream& random) {
  if (bytes.empty()) return;
  bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
  if (random.below(4) == 0) bytes.resize(random.below(bytes.size()));
}

std::string any_bytes(Channel channel, RandomStream& random, uint64_t content) {
  std::string bytes;
  if (channel == Channel::kControl) {
    bytes = tcp::encode({.kind = static_cast<tcp::Notice::Kind>(random.below(3)),
                         .sequence = any_number(random, 1),
                         .code = random.below(2) == 0 ? Code::kCancelled : static_cast<Code>(99),
                         .text = std::string(random.below(40), 't'),
                         .peer = std::string(random.below(40), 'p'),
                         .content = any_number(random, content),
                         .sender = static_cast<int32_t>(any_number(random, 0)),
                         .receiver = static_cast<int32_t>(any_number(random, 1))});
  } else {
    const FrameHeader frame = any_frame(random, content);
    bytes = bytes_of(frame) + std::string(std::min<size_t>(frame.length, 4 * kBytes), 'x');
  }
  if (random.below(8) == 0) spoil(bytes, random);
  return bytes;
}

// Calls that know the group's token, and others; the version stays, which is an error by itself.
std::string any_hello(const Peer& peer, RandomStream& random) {
  Hello hello = peer.hello(static_cast<Channel>(any_number(random, 1)));
  if (random.below(2) == 0) hello.token.low = random.below(UINT64_MAX);
  hello.size = static_cast<uint32_t>(any_number(random, 2));
  hello.from = static_cast<uint32_t>(any_number(random, 2));  // but for rank 1
  if (hello.from == 1) hello.from = 2;
  hello.to = static_cast<uint32_t>(any_number(random, 0));
  hello.answer = static_cast<uint32_t>(random.below(4));
  seal(hello);
  std::string bytes(reinterpret_cast<const char*>(&hello), sizeof hello);
  if (random.below(2) == 0) spoil(bytes, random);
  return bytes;
}

TEST(TcpHostileTest, AnyBytesEndInOrder) {
  const auto [seed, count] = trials(20'261'122, 40);
  const uint64_t content = reduction_content();
  for (uint64_t i = 0; i < count; ++i) {
    SCOPED_TRACE(str("seed ", seed, ", number ", i));
    RandomStream random(seed + i);
    const Outcome outcome = against([&](Peer& peer) {
      for (uint64_t call = random.below(3); call > 0; --call) peer.say(any_hello(peer, random));
      peer.introduce();
      for (uint64_t frame = random.below(12); frame > 0; --frame) {
        const auto channel = static_cast<Channel>(random.below(8) == 0 ? 2 : random.below(2));
        peer.send(channel, any_bytes(channel, random, content));
      }
    });
    EXPECT_FALSE(outcome.joining) << outcome.joining->what();
    for (const auto& error : {outcome.reduction, outcome.sending, outcome.receiving})
      if (error) {
        EXPECT_NE(error->code(), Code::kDeadlineExceeded) << error->what();
      }
  }
}

}  // namespace
}  // namespace cohort::testing
