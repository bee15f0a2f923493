#include "strategies/parameter_server/wire.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/link.h"
#include "strategies/parameter_server/spec_message.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using parameter_server::Link;
using parameter_server::Message;
using parameter_server::Piece;
using parameter_server::timeout_of;
using parameter_server::proto::Request;

TEST(Timeout, IsWhatTheCallerSaysAndNeverOverflows) {
  EXPECT_EQ(timeout_of(7'200'000).count(), 7'200'000);
  const auto now = std::chrono::steady_clock::now();
  EXPECT_TRUE(now + timeout_of(UINT64_MAX) > now);
}

class Wire : public ::testing::Test {
 protected:
  Wire() {
    client_->create(whole_shard("w", kFour), [] { return floats({0, 0, 0, 0}); });
  }
  // Sends raw messages on one call, then expects it to end with a code.
  Code code_of(const std::vector<Message>& messages) const {
    const auto channel =
        grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials());
    Link link(channel, Link::Unconnected::kWait);
    const auto deadline = soon();
    if (!link.connect(deadline)) return Code::kUnavailable;
    return error_of([&] {
             for (const Message& message : messages) link.send(message, deadline);
             for (;;)
               link.receive(
                   {.begin = [](const std::string&, size_t) {}, .take = [](const char*, size_t) {}},
                   deadline);
           })
        .code();
  }
  static Piece bytes(size_t count) {
    const auto owner = std::make_shared<std::string>(count, '\0');
    return {owner, owner->data(), count};
  }

  TestServer server_;
  std::unique_ptr<ParameterClient> client_ = server_.client();
};

TEST_F(Wire, RefusesMessagesThatDoNotFit) {
  EXPECT_EQ(code_of({{.header = "nonsense", .payload = {}}}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = "", .payload = {bytes(16)}}}), Code::kFailedPrecondition);
  EXPECT_EQ(code_of({{.header = push_header(16), .payload = {bytes(17)}}}), Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = push_header(16), .payload = {bytes(8)}},
                     {.header = push_header(16), .payload = {bytes(8)}}}),
            Code::kInvalidArgument);
  EXPECT_EQ(code_of({{.header = std::string(10 << 20, 'x'), .payload = {}}}),
            Code::kResourceExhausted);
  EXPECT_EQ(values_of(fetch(*client_, whole_shard("w", kFour))), (std::vector<float>(4)));
  EXPECT_GE(server_->statistics().requests_refused, 4u);
}

// A push of which a part has not come is no push.
TEST_F(Wire, DropsPushesThatAreCutOff) {
  {
    const auto channel =
        grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials());
    Link link(channel, Link::Unconnected::kWait);
    const auto deadline = soon();
    ASSERT_TRUE(link.connect(deadline));
    link.send({.header = push_header(16), .payload = {bytes(8)}}, deadline);
  }
  ASSERT_TRUE(eventually([&] { return server_->statistics().sessions <= 1; }));
  EXPECT_EQ(server_->statistics().pushes_applied, 0u);
}

TEST_F(Wire, AShardThatIsLeftHalfMadeIsMadeByTheNext) {
  const ShardSpec spec = whole_shard("new", kFour);
  Request asking = request();
  parameter_server::write_shard_spec(spec, asking.mutable_create());
  asking.mutable_create()->set_payload_bytes(16);
  Link link(grpc::CreateChannel(server_.address().text(), grpc::InsecureChannelCredentials()),
            Link::Unconnected::kWait);
  ASSERT_TRUE(link.connect(soon()));
  const uint64_t before = server_->statistics().received_bytes;
  const auto have_come = [&](uint64_t bytes) {
    return eventually([&] { return server_->statistics().received_bytes == before + bytes; });
  };
  std::thread leaving;
  const bool made = client_->create(spec, [&] {
    link.send({.header = asking.SerializeAsString(), .payload = {bytes(8)}}, soon());
    EXPECT_TRUE(have_come(8));
    leaving = std::thread([&] {
      EXPECT_TRUE(have_come(8 + 16));
      link.cancel();
    });
    return floats({1, 2, 3, 4});
  });
  leaving.join();
  EXPECT_TRUE(made);
  EXPECT_EQ(values_of(fetch(*client_, spec)), (std::vector<float>{1, 2, 3, 4}));
}

TEST_F(Wire, LimitsCallsThatAreOpen) {
  TestServer small({.max_sessions = 2});
  std::vector<std::unique_ptr<ParameterClient>> clients;
  for (int i = 0; i < 2; ++i) {
    clients.push_back(small.client(str("worker:", i)));
    clients.back()->statistics();
  }
  EXPECT_ERROR(small.client("worker:2")->statistics(), Code::kResourceExhausted, "2 calls");
  clients[0]->statistics();
}

TEST_F(Wire, LetsCallsThatAreSilentKeepNobodyAway) {
  TestServer small({.max_sessions = 2});
  const auto channel =
      grpc::CreateChannel(small.address().text(), grpc::InsecureChannelCredentials());
  std::vector<std::unique_ptr<Link>> silent;
  for (int i = 0; i < 2; ++i) {
    silent.push_back(std::make_unique<Link>(channel, Link::Unconnected::kWait));
    ASSERT_TRUE(silent.back()->connect(soon()));
  }
  ASSERT_TRUE(eventually([&] { return small->statistics().sessions == 2; }));
  EXPECT_GE(small.client()->statistics().sessions, 1u);
}

}  // namespace
}  // namespace cohort::testing
