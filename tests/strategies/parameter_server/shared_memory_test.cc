// Client and server on one host, who share memory: when they do, and what a caller that does not
// keep to the rules can reach with it.
#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <thread>

#include "core/base/random.h"
#include "proto/parameter_server.pb.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/collective/host/region_registry.h"
#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/local_link.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/shared_stream.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using parameter_server::Frame;
using parameter_server::FrameSocket;
using parameter_server::kAreaBytes;
using parameter_server::LocalOffer;
using parameter_server::proto::Request;

// Whether the text of a file of /proc has a word in it.
bool has_word(const char* path, const std::string& word) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str().find(word) != std::string::npos;
}

// What a server offers to a caller on `host`, by gRPC; nothing where it offers nothing.
std::optional<LocalOffer> offer_of(const TestServer& server, const std::string& host) {
  const auto shared = upgrade_of(server.address(), host);
  if (shared.socket().empty()) return std::nullopt;
  return LocalOffer{.socket = shared.socket(),
                    .word = shared.word(),
                    .server = {.pid = shared.pid(), .start_time = shared.start_time()}};
}

TEST(SharedMemory, IsUsedOnOneHost) {
  TestServer server;
  const auto client = server.client();
  client->statistics();
  EXPECT_TRUE(eventually([&] { return client->statistics().sessions == 1; }))
      << "the call by gRPC is over";
  EXPECT_EQ(client->statistics().sharing_sessions, 1u);
}

TEST(SharedMemory, IsOfferedToTheSameHostOnly) {
  TestServer server;
  EXPECT_TRUE(offer_of(server, host_identity()));
  EXPECT_FALSE(offer_of(server, "another"));
  EXPECT_FALSE(offer_of(server, ""));
}

// Sizes below, at and beyond those of segments and of the whole area.
TEST(SharedMemory, MovesPayloadsOfAnySize) {
  TestServer server;
  const auto client = server.client();
  constexpr auto kSegment = static_cast<int64_t>(parameter_server::kMaxSegmentBytes / 4);
  const std::vector<int64_t> sizes = {0,         1, 17,     kSegment - 1, kSegment, kSegment + 1,
                                      9'000'001, 3, 600'000};
  std::vector<ShardPush> pushes;
  std::vector<ShardPull> pulls;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const TensorSpec spec{DType::kFloat32, {sizes[i]}};
    const std::string name = str("w", i);
    Tensor initial(spec.dtype, spec.shape), gradient(spec.dtype, spec.shape);
    std::iota(initial.data<float>(), initial.data<float>() + sizes[i], 1.0F);
    std::iota(gradient.data<float>(), gradient.data<float>() + sizes[i], 0.0F);
    EXPECT_TRUE(client->create(whole_shard(name, spec), [&] { return initial; }));
    pushes.push_back({.shard = name, .gradient = gradient, .learning_rate = 1});
    pulls.push_back({.shard = name, .target = Tensor(spec.dtype, spec.shape)});
  }
  for (int round = 1; round <= 3; ++round) {
    client->update(pushes, pulls);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t wrong = 0;
      for (int64_t j = 0; j < sizes[i]; ++j) {
        const double wanted = 1 - (round - 1) * static_cast<double>(j);
        const double error = std::abs(pulls[i].target.data<float>()[j] - wanted);
        wrong += error > static_cast<double>(j) * 1e-6;
      }
      EXPECT_EQ(wrong, 0) << sizes[i] << " elements, round " << round;
    }
  }
  EXPECT_EQ(client->statistics().sharing_sessions, 1u);
  EXPECT_EQ(client->statistics().requests_refused, 0u);
}

TEST(SharedMemory, MovesManySmallShards) {
  TestServer server;
  const auto client = server.client();
  constexpr int64_t kShards = 300;
  std::vector<ShardPush> pushes;
  std::vector<ShardPull> pulls;
  for (int64_t i = 0; i < kShards; ++i) {
    const TensorSpec spec{DType::kFloat32, {1 + i % 700}};
    const ShardSpec shard = whole_shard(str("w", i), spec);
    client->create(shard, [&] { return Tensor::zeros(spec.dtype, spec.shape); });
    pushes.push_back({.shard = shard.name,
                      .gradient = Tensor::full(spec.dtype, spec.shape, -static_cast<double>(i)),
                      .learning_rate = 1});
    pulls.push_back({.shard = shard.name, .target = Tensor(spec.dtype, spec.shape)});
  }
  client->update(pushes, pulls);
  for (size_t i = 0; i < pulls.size(); ++i)
    for (const float value : pulls[i].target.values<float>()) ASSERT_EQ(value, i);
}

TEST(SharedMemory, ComesBackWithTheServer) {
  const TemporaryFolder folder("ps");
  TestServer server({.snapshot_folder = folder.path()});
  const auto client = server.client();
  const ShardSpec spec = whole_shard("w", kFour);
  client->create(spec, [] { return floats({0, 0, 0, 0}); });
  for (int life = 0; life < 3; ++life) {
    client->push({.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1});
    EXPECT_EQ(client->statistics().sharing_sessions, 1u);
    server->snapshot();
    server.stop();
    server.start();
  }
  EXPECT_EQ(values_of(fetch(*client, spec)), (std::vector<float>{3, 3, 3, 3}));
}

// A client that is turned away at the socket still has gRPC.
TEST(SharedMemory, IsNotNeeded) {
  TestServer server({.max_sessions = 1});
  const auto client = server.client();
  EXPECT_EQ(client->statistics().sharing_sessions, 0u);
  EXPECT_EQ(client->statistics().requests_refused, 0u);
}

TEST(SharedMemory, LeavesNothingBehind) {
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const char* socket = "@cohort-parameter-server-";
  const auto life = [&] {
    TestServer server;
    const auto client = server.client();
    client->statistics();
    EXPECT_TRUE(has_word("/proc/self/maps", "memfd:cohort"));
    EXPECT_TRUE(has_word("/proc/net/unix", socket));
  };
  life();  // gRPC keeps some of its own
  const auto before = descriptors();
  life();
  EXPECT_TRUE(eventually([&] { return descriptors() <= before; }));
  EXPECT_FALSE(has_word("/proc/self/maps", "memfd:cohort"));
}

TEST(SharedMemory, IsGivenBackByWhoHasGone) {
  TestServer server;
  server.client()->statistics();
  EXPECT_TRUE(eventually([&] { return server->statistics().sessions == 0; }));
  EXPECT_TRUE(eventually([&] { return !has_word("/proc/self/maps", "memfd:cohort"); }));
}

TEST(SharedMemory, NeedsACertificateWhereGrpcDoes) {
  const Certificates certificates;
  TestServer server({.tls = certificates.files()});
  const auto client = [&](const TlsFiles& files) {
    return ParameterClient(server.address(),
                           {.task = "worker:0",
                            .job_id = "job",
                            .timeout = std::chrono::seconds(files.key.empty() ? 1 : 20),
                            .tls = files},
                           no_environment);
  };
  EXPECT_EQ(client(certificates.files()).statistics().sharing_sessions, 1u);
  EXPECT_ERROR(client({}).statistics(), Code::kUnavailable, server.address().text());
  EXPECT_EQ(server->statistics().sharing_sessions, 0u);
}

// --- Callers that do not keep to the rules

class Intruder : public ::testing::Test {
 protected:
  Intruder() {
    client_->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
    client_->create(whole_shard("rows", {DType::kFloat32, {8, 4}}), [] {
      return Tensor::zeros(DType::kFloat32, {8, 4});
    });
  }
  // Whatever has happened, others do not notice.
  ~Intruder() override {
    EXPECT_EQ(values_of(fetch(*client_, whole_shard("w", kFour))), (std::vector<float>(4)));
  }

  struct Connection {
    explicit Connection(net::Descriptor descriptor) : socket(std::move(descriptor)) {}
    FrameSocket socket;
    SharedRegion area;
  };
  // `known`: says truly which process it is.
  std::unique_ptr<Connection> connect(bool known = false) const {
    const auto offer = offer_of(server_, host_identity());
    auto connection =
        std::make_unique<Connection>(parameter_server::connect_locally(offer->socket));
    const ProcessIdentity self = known ? this_process() : ProcessIdentity{};
    connection->socket.put({.kind = Frame::Kind::kHello,
                            .number = static_cast<uint64_t>(self.pid),
                            .bytes = self.start_time},
                           offer->word);
    connection->socket.flush(soon());
    FrameSocket::Incoming welcome;
    connection->socket.get(welcome, soon());
    EXPECT_EQ(welcome.frame.region, known ? 1u : 0u);
    EXPECT_EQ(welcome.frame.kind, Frame::Kind::kWelcome);
    connection->area = SharedRegion::open(offer->server, static_cast<int>(welcome.frame.number),
                                          welcome.frame.bytes);
    return connection;
  }
  // What the server answers to frames in the end.
  struct Say {
    Frame frame;
    std::string text;
  };
  static Error answer(FrameSocket& socket, const std::vector<Say>& frames) {
    return error_of([&] {
      for (const Say& say : frames) socket.put(say.frame, say.text);
      socket.flush(soon());
      for (FrameSocket::Incoming incoming;;) {
        socket.get(incoming, soon());
        if (incoming.frame.kind == Frame::Kind::kError) throw parameter_server::error_in(incoming);
      }
    });
  }
  Error answer(const std::vector<Say>& frames) const { return answer(connect()->socket, frames); }

  TestServer server_;
  std::unique_ptr<ParameterClient> client_ = server_.client();
};

TEST_F(Intruder, NeedsAWordOfItsOwn) {
  const auto offer = offer_of(server_, host_identity());
  const auto refused = [&](const std::string& word) {
    FrameSocket socket(parameter_server::connect_locally(offer->socket));
    return answer(socket, {{{.kind = Frame::Kind::kHello}, word}}).code();
  };
  EXPECT_EQ(refused(""), Code::kPermissionDenied);
  EXPECT_EQ(refused(std::string(offer->word.size(), 'x')), Code::kPermissionDenied);
  FrameSocket good(parameter_server::connect_locally(offer->socket));
  good.put({.kind = Frame::Kind::kHello}, offer->word);
  good.flush(soon());
  FrameSocket::Incoming welcome;
  good.get(welcome, soon());
  EXPECT_EQ(welcome.frame.kind, Frame::Kind::kWelcome);
  EXPECT_EQ(refused(offer->word), Code::kPermissionDenied) << "a word holds once";
  // The server has hung up before all of it is sent.
  EXPECT_EQ(refused(std::string(1 << 20, 'x')), Code::kResourceExhausted);
  FrameSocket silent(parameter_server::connect_locally(offer->socket));
  EXPECT_EQ(answer(silent, {{{.kind = Frame::Kind::kMessage}, push_header(16)}}).code(),
            Code::kInvalidArgument);
}

TEST_F(Intruder, ReachesNothingOutsideTheArea) {
  const Say begin{{.kind = Frame::Kind::kMessage, .bytes = 16}, push_header(16)};
  const auto segment = [](uint64_t offset, uint64_t bytes) {
    return Say{{.kind = Frame::Kind::kSegment, .number = offset, .bytes = bytes}, ""};
  };
  const auto refused = [&](const std::vector<Say>& frames, Code code, const char* part) {
    const Error error = answer(frames);
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.what();
  };
  for (const auto& [offset, bytes] : std::vector<std::pair<uint64_t, uint64_t>>{
           {kAreaBytes, 16}, {kAreaBytes - 15, 16}, {UINT64_MAX, 16}, {UINT64_MAX - 8, 16}})
    refused({begin, segment(offset, bytes)}, Code::kInvalidArgument, "of an area");
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{17}, UINT64_MAX})
    refused({begin, segment(0, bytes)}, Code::kInvalidArgument, "16 to come");
  refused({begin, begin}, Code::kInvalidArgument, "expected to go on");
  refused({segment(0, 16)}, Code::kInvalidArgument, "a message was expected");
  refused({begin, {{.kind = Frame::Kind::kReturn, .number = 1}, ""}}, Code::kInvalidArgument,
          "expected to go on");
  refused({{{.kind = Frame::Kind::kReturn, .number = UINT64_MAX}, ""}}, Code::kDataLoss,
          "given back");
  refused({{{.kind = Frame::Kind(77)}, ""}}, Code::kInvalidArgument, "expected");
  refused({{{.kind = Frame::Kind::kMessage, .bytes = UINT64_MAX}, push_header(16)}},
          Code::kInvalidArgument, "more than it says");
  refused({{{.kind = Frame::Kind::kMessage, .bytes = 8}, push_header(16)},
           segment(0, 8),
           {{.kind = Frame::Kind::kMessage}, ""}},
          Code::kInvalidArgument, "is empty");
  refused({{{.kind = Frame::Kind::kMessage, .bytes = 16}, "nonsense"}}, Code::kInvalidArgument,
          "header");
  refused({{{.kind = Frame::Kind::kMessage, .bytes = 8}, push_header(8)}}, Code::kInvalidArgument,
          "16 bytes");
  EXPECT_GE(server_->statistics().requests_refused, 10u);
}

TEST_F(Intruder, CannotSendHeadersWithoutEnd) {
  const auto connection = connect();
  // A frame that says that its text is much longer than any may be.
  FrameSocket::Incoming incoming;
  const Frame endless{.kind = Frame::Kind::kMessage, .text_bytes = UINT32_MAX};
  ASSERT_EQ(send(connection->socket.stream().fd(), &endless, sizeof endless, MSG_NOSIGNAL),
            static_cast<ssize_t>(sizeof endless));
  connection->socket.get(incoming, soon());
  EXPECT_EQ(parameter_server::error_in(incoming).code(), Code::kResourceExhausted);
}

// Memory of the caller's own process that the server reads: where it says, and only if it is such.
TEST_F(Intruder, LendsNothingButMemoryOfItsOwn) {
  const auto memory = allocate_shared_buffer(4096);
  const auto place = *find_region(memory->data, memory->bytes);
  const Say begin{{.kind = Frame::Kind::kMessage, .bytes = 16}, push_header(16)};
  const auto region = [](uint64_t descriptor, uint64_t bytes, uint32_t number = 1) {
    return Say{
        {.kind = Frame::Kind::kRegion, .region = number, .number = descriptor, .bytes = bytes}, ""};
  };
  const auto segment = [](uint64_t offset, uint64_t sequence = 0) {
    return Say{{.kind = Frame::Kind::kSegment,
                .region = 1,
                .number = offset,
                .bytes = 16,
                .sequence = sequence},
               ""};
  };
  const auto code = [&](const std::vector<Say>& frames) {
    return answer(connect(true)->socket, frames).code();
  };
  const Say lent = region(static_cast<uint64_t>(place.descriptor), place.region_bytes);
  EXPECT_EQ(code({begin, segment(0)}), Code::kInvalidArgument) << "nothing was lent";
  for (const uint64_t offset : {uint64_t{4081}, uint64_t{4096}, UINT64_MAX, UINT64_MAX - 15})
    EXPECT_EQ(code({begin, lent, segment(offset)}), Code::kInvalidArgument) << offset;
  EXPECT_EQ(code({begin, lent, segment(32, 2)}), Code::kInvalidArgument) << "no room for a guard";
  EXPECT_EQ(code({begin, lent, region(0, 0), segment(0)}), Code::kInvalidArgument) << "taken back";
  EXPECT_EQ(code({begin, region(0, 4096), segment(0)}), Code::kDataLoss) << "standard input";
  EXPECT_EQ(code({begin, region(lent.frame.number, 8192), segment(0)}), Code::kDataLoss);
  EXPECT_EQ(code({begin, region(UINT64_MAX, 4096), segment(0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({begin, region(lent.frame.number, 4096, 0)}), Code::kInvalidArgument);
  EXPECT_EQ(code({lent}), Code::kInvalidArgument) << "outside of a message";
  EXPECT_EQ(server_->statistics().pushes_applied, 0u);
}

// A push of which a part has not come is no push.
TEST_F(Intruder, MayDieHalfway) {
  {
    const auto connection = connect();
    connection->socket.put({.kind = Frame::Kind::kMessage, .bytes = 16}, push_header(16));
    connection->socket.put({.kind = Frame::Kind::kSegment, .number = 0, .bytes = 8});
    connection->socket.flush(soon());
  }
  EXPECT_TRUE(eventually([&] { return server_->statistics().sessions == 1; }));
  EXPECT_EQ(server_->statistics().pushes_applied, 0u);
}

// Row numbers that change while the server looks at them are those that it has looked at.
TEST_F(Intruder, ChangesRowsUnderTheServersEyes) {
  constexpr int64_t kRows = 1000, kWrong = int64_t{1} << 60;
  constexpr uint64_t kBytes = kRows * (8 + 16 + 8);
  Request pushing = request();
  auto& push = *pushing.mutable_update()->add_pushes();
  push.set_shard("rows");
  push.set_rows(kRows);
  push.set_payload_bytes(kRows * (8 + 16));
  auto& pull = *pushing.mutable_update()->add_pulls();
  pull.set_shard("rows");
  pull.set_rows(kRows);
  int refused = 0;
  // On busy cores the writer may come too late a few times.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  for (uint64_t i = 1; i <= 30 || (refused == 0 && std::chrono::steady_clock::now() < deadline);
       ++i) {
    const auto connection = connect();
    FrameSocket& socket = connection->socket;
    std::atomic<bool> stop = false;
    std::thread writer([&] {
      volatile auto* words = reinterpret_cast<int64_t*>(connection->area.data());
      while (!stop)
        for (const int64_t number : {kWrong, int64_t{0}}) {
          words[kRows - 1] = number;      // the last row that is pushed
          words[4 * kRows - 1] = number;  // and pulled
        }
    });
    push.set_sequence(i);
    socket.put({.kind = Frame::Kind::kMessage, .bytes = kBytes}, pushing.SerializeAsString());
    // The numbers in one segment, and values that are used from where they are.
    socket.put({.kind = Frame::Kind::kSegment, .number = 0, .bytes = kRows * 8});
    socket.put({.kind = Frame::Kind::kSegment, .number = kRows * 8, .bytes = kRows * 16});
    socket.put({.kind = Frame::Kind::kSegment, .number = kRows * 24, .bytes = kRows * 8});
    FrameSocket::Incoming incoming;
    socket.flush(soon());
    socket.get(incoming, soon());
    stop = true;
    writer.join();
    if (incoming.frame.kind == Frame::Kind::kMessage) continue;
    EXPECT_EQ(parameter_server::error_in(incoming).code(), Code::kOutOfRange);
    ++refused;
  }
  EXPECT_GT(refused, 0);
}

// One that takes nothing of its reply holds up nobody else.
TEST_F(Intruder, MayNeverReadItsReply) {
  const TensorSpec spec{DType::kFloat32, {static_cast<int64_t>(kAreaBytes)}};  // 4 areas
  client_->create(whole_shard("large", spec),
                  [&] { return Tensor::zeros(spec.dtype, spec.shape); });
  const auto connection = connect();
  Request pulling = request();
  auto& pull = *pulling.mutable_update()->add_pulls();
  pull.set_shard("large");
  pull.set_rows(-1);
  pull.set_copied(true);
  connection->socket.put({.kind = Frame::Kind::kMessage}, pulling.SerializeAsString());
  connection->socket.flush(soon());
  FrameSocket::Incoming incoming;
  connection->socket.get(incoming, soon());
  EXPECT_EQ(incoming.frame.kind, Frame::Kind::kMessage);
  client_->push(
      {.shard = "large", .gradient = Tensor::zeros(spec.dtype, spec.shape), .learning_rate = 1});
  EXPECT_EQ(server_->statistics().pushes_applied, 1u);
  server_.stop();  // and is no reason to wait
  server_.start();
  client_->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
}

// Any bytes at all.
TEST_F(Intruder, SaysAnything) {
  constexpr uint64_t kSeed = 99;
  SCOPED_TRACE(str("seed ", kSeed));
  RandomStream random(kSeed);
  for (int i = 0; i < 40; ++i) {
    const auto connection = connect();
    std::string bytes;
    for (int frame = 0; frame < 6; ++frame) {
      const bool message = frame == 0 || random.below(3) == 0;
      const std::string text = message ? push_header(16) : "";
      Frame next{.kind = message ? Frame::Kind::kMessage : Frame::Kind::kSegment,
                 .text_bytes = static_cast<uint32_t>(text.size()),
                 .number = 0,
                 .bytes = 16};
      bytes.append(reinterpret_cast<const char*>(&next), sizeof next);
      bytes += text;
    }
    for (uint64_t n = 1 + random.below(4); n > 0; --n)
      bytes[random.below(bytes.size())] = static_cast<char>(random.below(256));
    bytes.resize(1 + random.below(bytes.size()));
    send(connection->socket.stream().fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  EXPECT_TRUE(eventually([&] { return server_->statistics().sessions == 1; }));
}

}  // namespace
}  // namespace cohort::testing
