#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "strategies/collective/host/process_identity.h"
#include "strategies/parameter_server/direct_link.h"
#include "strategies/parameter_server/frame_socket.h"
#include "strategies/parameter_server/local_link.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/strategies/parameter_server/watched_rule.h"
#include "tests/testing/eventually.h"
#include "tests/testing/gate.h"

// A server whose requests wait for each other is not taken for one that has gone.
namespace cohort::testing {
namespace {

using parameter_server::FrameSocket;
using parameter_server::Link;
using parameter_server::Piece;
using parameter_server::proto::Request;

// Less than a request has to wait. By gRPC a server is asked for a sign of life after two seconds.
constexpr milliseconds kShort(1000);
// When a server that says nothing has been given up for some time: a beat more than is allowed was
// missed by then.
milliseconds longer() {
  const milliseconds asked_after(transport() == Transport::kGrpc ? 2000 : 0);
  return asked_after + kShort + 3 * FrameSocket::kBeat;
}

class BusyServer : public ::testing::Test {
 protected:
  BusyServer() {
    ShardSpec spec = whole_shard("w", kFour);
    spec.update = trace_update(WatchedRule(), kFour);
    holder_->create(spec, [] { return floats({0, 0, 0, 0}); });
  }
  ~BusyServer() override { gate_.open(); }

  // A push that has the shard's lock until the gate opens.
  std::future<void> hold() {
    gate_.close();
    auto held = std::async(std::launch::async, [this] {
      holder_->push({.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1});
    });
    EXPECT_TRUE(eventually([this] { return gate_.holds_somebody(); }));
    return held;
  }

  // A link that gives up at once where a client would look for the server anew.
  std::unique_ptr<Link> connect(const std::string& task) {
    std::unique_ptr<Link> link;
    if (transport() == Transport::kGrpc) {
      link = std::make_unique<Link>(
          parameter_server::open_channel(server_.address(), security_, kShort),
          Link::Unconnected::kWait);
    } else {
      const auto offer = upgrade_of(server_.address(), host_identity(), task);
      link = transport() == Transport::kDirect
                 ? parameter_server::link_directly(server_.address(), security_,
                                                   offer.direct_word(), kShort)
                 : parameter_server::link_locally(
                       {.socket = offer.socket(),
                        .word = offer.word(),
                        .server = {.pid = offer.pid(), .start_time = offer.start_time()}},
                       kShort);
    }
    EXPECT_TRUE(link->connect(soon()));
    return link;
  }

  // What becomes of a request, on a thread of its own.
  std::future<Error> ask(const Request& asking, const std::vector<float>& payload = {}) {
    links_.push_back(connect(asking.caller().task()));
    return std::async(std::launch::async,
                      [link = links_.back().get(), header = asking.SerializeAsString(), payload] {
                        return error_of([&] {
                          const auto bytes = std::make_shared<std::vector<float>>(payload);
                          std::vector<Piece> pieces;
                          if (!bytes->empty())
                            pieces.push_back({.owner = bytes,
                                              .data = reinterpret_cast<const char*>(bytes->data()),
                                              .bytes = bytes->size() * sizeof(float)});
                          link->send({.header = header, .payload = std::move(pieces)}, soon());
                          link->receive({.begin = [](const std::string&, size_t) {},
                                         .take = [](const char*, size_t) {}},
                                        soon());
                        });
                      });
  }

  static Request pull(uint64_t at_least = 0) {
    Request asking = request();
    auto& pull = *asking.mutable_update()->add_pulls();
    pull.set_shard("w");
    pull.set_rows(-1);
    pull.set_at_least(at_least);
    asking.set_timeout_ms(20'000);
    return asking;
  }
  static Request push() {
    Request asking;
    EXPECT_TRUE(asking.ParseFromString(push_header(4 * sizeof(float))));
    asking.mutable_update()->mutable_pushes(0)->set_learning_rate(1);
    return asking;
  }
  static Request snapshot(const std::string& folder) {
    Request asking = request("worker:0");
    asking.mutable_snapshot()->set_folder(folder);
    return asking;
  }

  const TemporaryFolder folder_{"ps"};
  Gate gate_;
  const UpdateWatch watch_{[this] { gate_.pass(); }};
  const coordination::Security security_{{}, false, no_environment};
  TestServer server_{{.threads = 2}};
  const std::unique_ptr<ParameterClient> holder_ = server_.client("worker:1");
  std::vector<std::unique_ptr<Link>> links_;
};

// All that needs the lock of a shard waits for it, a snapshot too. There are more such requests
// than gRPC has threads of its own on most machines: one for two cores.
TEST_F(BusyServer, ShowsThatItLivesToAllWhoWaitForALock) {
  auto held = hold();
  std::vector<std::future<Error>> answers;
  answers.push_back(ask(snapshot(folder_.path() + "/saved")));
  for (int i = 0; i < 3; ++i) {
    answers.push_back(ask(push(), {-1, -1, -1, -1}));
    answers.push_back(ask(pull()));
    answers.push_back(ask(pull(2)));
  }
  const auto end = std::chrono::steady_clock::now() + longer();
  for (auto& answer : answers)
    EXPECT_EQ(answer.wait_until(end), std::future_status::timeout) << "it was given up";
  gate_.open();
  for (auto& answer : answers) EXPECT_EQ(answer.get().message(), "no error");
  held.get();
  EXPECT_EQ(values_of(fetch(*holder_, whole_shard("w", kFour))), (std::vector<float>(4, 2)))
      << "worker:7 has pushed the same three times";
}

// Each shard has a lock of its own.
TEST_F(BusyServer, PushesToOtherShardsAndPullsThem) {
  const ShardSpec other = whole_shard("other", kFour);
  const auto client = server_.client("worker:2");
  client->create(other, [] { return floats({0, 0, 0, 0}); });
  auto held = hold();
  for (int i = 1; i <= 3; ++i) {
    const ShardPushed pushed =
        client->push({.shard = "other", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1});
    EXPECT_EQ(pushed.outcome, PushOutcome::kApplied);
    EXPECT_EQ(values_of(fetch(*client, other)), std::vector<float>(4, static_cast<float>(i)));
  }
  EXPECT_TRUE(gate_.holds_somebody()) << "the update of w is under way still";
  EXPECT_EQ(held.wait_for(milliseconds(0)), std::future_status::timeout);
  gate_.open();
  held.get();
  EXPECT_EQ(values_of(fetch(*client, whole_shard("w", kFour))), std::vector<float>(4, 1));
}

}  // namespace
}  // namespace cohort::testing
