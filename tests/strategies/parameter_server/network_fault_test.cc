#include <thread>

#include "core/base/random.h"
#include "strategies/parameter_server/server_session.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/certificates.h"
#include "tests/testing/tcp_fault_proxy.h"
#include "tests/testing/trials.h"

// Workers whose connection to the server fails. Every push adds 1 to every element, so that the
// value is the number of pushes that were applied.
namespace cohort::testing {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using Kind = NetworkFault::Kind;
using Direction = NetworkFault::Direction;

constexpr int64_t kElements = 50'000;
constexpr int kPushes = 12;
constexpr Direction kDirections[] = {Direction::kToServer, Direction::kToClient};
// Those that a fault of a network can reach.
constexpr Transport kTransports[] = {Transport::kGrpc, Transport::kDirect};

class FaultyServer {
 public:
  explicit FaultyServer(Transport transport, const TlsFiles& tls = {})
      : transport_(transport), tls_(tls), server_({.tls = tls}) {}

  TcpFaultProxy& proxy() { return proxy_; }
  Address proxy_address() const { return Address::parse(proxy_.endpoint().text()); }

  // Pushes and pulls through the proxy, then looks at the server itself.
  void work(milliseconds timeout = seconds(20)) {
    ParameterClient client(proxy_address(),
                           {.task = "worker:0",
                            .job_id = "job",
                            .timeout = timeout,
                            .transport = transport_,
                            .tls = tls_},
                           no_environment);
    const ShardSpec spec = whole_shard("w", {DType::kFloat32, {kElements}});
    const auto all = [](float value) { return floats(std::vector<float>(kElements, value)); };
    client.create(spec, [&] { return all(0); });
    for (int i = 1; i <= kPushes; ++i) {
      client.push({.shard = "w", .gradient = all(-1), .learning_rate = 1});
      expect_all(fetch(client, spec), i);
    }
    ParameterClient direct(server_.address(), {.task = "worker:1", .job_id = "job", .tls = tls_},
                           no_environment);
    expect_all(fetch(direct, spec), kPushes);
  }
  const std::string& wrong() const { return wrong_; }
  // Which of all connections the client's `number`-th one for its work is.
  int connection(int number) const {
    return transport_ == Transport::kDirect ? 2 * number + 1 : number;
  }

 private:
  void expect_all(const Tensor& value, int pushes) {
    for (const float v : values_of(value))
      if (v != static_cast<float>(pushes)) {
        wrong_ = str(v, " after ", pushes, " pushes");
        return;
      }
  }

  const Transport transport_;
  const TlsFiles tls_;
  TestServer server_;
  TcpFaultProxy proxy_{net::InternetAddress::parse(server_.address().text(), "the server")};
  std::string wrong_;
};

TEST(ParameterServerFaults, DelaysAndBrokenConnectionsChangeNothing) {
  const auto [seed, count] = trials(99, 8);
  RandomStream random(seed);
  for (const Kind kind : {Kind::kDelay, Kind::kReset, Kind::kClose, Kind::kHalfClose})
    for (uint64_t i = 0; i < count; ++i) {
      FaultyServer server(kTransports[i % 2]);
      for (int connection = 0; connection < 3; ++connection)
        server.proxy().add({.kind = kind,
                            .direction = kDirections[random.below(2)],
                            .after = static_cast<int64_t>(random.below(4 * kElements * 4)),
                            .connection = server.connection(kind == Kind::kDelay ? 0 : connection),
                            .delay = milliseconds(100)});
      server.work();
      EXPECT_EQ(server.wrong(), "") << "kind " << static_cast<int>(kind) << " run " << i;
      EXPECT_TRUE(server.proxy().is_over());
    }
}

// Keepalive finds out, and the client connects again.
TEST(ParameterServerFaults, AStalledConnectionIsReplaced) {
  for (const Transport transport : kTransports)
    for (const Direction direction : kDirections) {
      FaultyServer server(transport);
      server.proxy().add({.kind = Kind::kStall,
                          .direction = direction,
                          .after = 5 * kElements * 4,
                          .connection = server.connection(0)});
      const auto began = Clock::now();
      server.work();
      EXPECT_EQ(server.wrong(), "");
      EXPECT_TRUE(server.proxy().is_over());
      EXPECT_LT(Clock::now() - began, seconds(15));
    }
}

TEST(ParameterServerFaults, AServerThatCannotBeReachedAnyMoreIsNamedWhenTheTimeIsOver) {
  FaultyServer server(Transport::kDirect);
  server.proxy().freeze();
  const auto began = Clock::now();
  const Error error = error_of([&] { server.work(seconds(1)); });
  EXPECT_LT(Clock::now() - began, seconds(10));
  EXPECT_TRUE(error.code() == Code::kDeadlineExceeded || error.code() == Code::kUnavailable)
      << error.what();
  EXPECT_EQ(error.peer(), server.proxy_address().text());
}

// As where it is large, and the network slow: it is the version that is waited for again and again.
TEST(ParameterServerFaults, AnUpdateThatTakesLongToComeIsNotAskedForAgain) {
  const ConsistencyOptions synchronous{.max_staleness = 0};
  TestServer server({.consistency = synchronous});
  TcpFaultProxy proxy(net::InternetAddress::parse(server.address().text(), "the server"));
  ServerSession session({Address::parse(proxy.endpoint().text())},
                        {.task = "worker:0",
                         .job_id = "job",
                         .patience = seconds(20),
                         .transport = Transport::kDirect},
                        synchronous, no_environment);
  const ShardSpec spec = whole_shard("w", kFour);
  session.client(0).create(spec, [] { return floats({1, 2, 3, 4}); });
  constexpr int kConnections = 2;  // the second without gRPC
  ASSERT_EQ(proxy.connections(), kConnections);
  proxy.add({.kind = Kind::kDelay,
             .direction = Direction::kToClient,
             .connection = kConnections - 1,
             .delay = seconds(3)});
  const Tensor value = Tensor::zeros(DType::kFloat32, {4});
  const ShardPull pull{.shard = "w", .target = value, .at_least = 1};
  session.update({{.pushes = {}, .pulls = {pull}, .awaited_epochs = {server->epoch()}}});
  EXPECT_EQ(values_of(value), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(proxy.connections(), kConnections);
  EXPECT_TRUE(proxy.is_over());
}

// Without encryption there is no check but that of TCP; what must not happen is a crash or a hang.
TEST(ParameterServerFaults, AFlippedBitIsNeverAWrongNumberWhereThereIsEncryption) {
  const auto [seed, count] = trials(7, 16);
  RandomStream random(seed);
  const Certificates certificates;
  for (const bool encrypted : {true, false})
    for (uint64_t i = 0; i < count; ++i) {
      FaultyServer server(kTransports[i % 4 / 2], encrypted ? certificates.files() : TlsFiles{});
      const NetworkFault fault{
          .kind = Kind::kFlip,
          .direction = kDirections[random.below(2)],
          .after = static_cast<int64_t>(random.below(i % 2 == 0 ? 4000 : kPushes * kElements * 4)),
          .connection = server.connection(0),
          .bit = static_cast<int>(random.below(8))};
      SCOPED_TRACE(str("bit ", fault.bit, " of byte ", fault.after, " direction ",
                       static_cast<int>(fault.direction), encrypted ? " encrypted" : ""));
      server.proxy().add(fault);
      const auto began = Clock::now();
      const Error error = error_of([&] { server.work(seconds(encrypted ? 20 : 2)); });
      EXPECT_LT(Clock::now() - began, seconds(20));
      if (!encrypted) continue;
      EXPECT_EQ(error.message(), "no error");
      EXPECT_EQ(server.wrong(), "");
      EXPECT_TRUE(server.proxy().is_over());
    }
}

}  // namespace
}  // namespace cohort::testing
