// What becomes of the closures that a message has results of, and of a call to a worker, also where
// there is no memory.
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/coordinator/client_stream.h"
#include "strategies/coordinator/landed_results.h"
#include "strategies/parameter_server/link.h"
#include "tests/testing/failing_allocations.h"

namespace cohort::testing {
namespace {

using coordinator::ClientStream;
using coordinator::Closure;
using coordinator::ClosurePtr;
using coordinator::FunctionFamily;
using coordinator::HeldCalls;
using coordinator::InFlightCalls;
using coordinator::LandedResults;
using coordinator::RemoteResult;
using coordinator::Result;

constexpr uint64_t kCount = 9;

class Landing : public ::testing::Test {
 protected:
  static ClosurePtr closure() {
    auto made = std::make_unique<Closure>();
    made->function = std::make_shared<FunctionFamily>(1, "f", nullptr, nullptr, nullptr);
    made->result = std::make_shared<RemoteResult>();
    return made;
  }
  // One of each kind, for closures that are in flight here.
  std::vector<Result> results() {
    std::vector<Result> all;
    const auto add = [&](Result result) {
      result.id = ++last_id_;
      in_flight_.add(result.id, closure(), {});
      all.push_back(std::move(result));
    };
    add({.values = {Tensor::scalar(1.0f)}});
    add({.error = Error(Code::kInternal, std::string(100, 'x'))});
    add({.values = {}, .returned = true});
    add({.values = {Tensor::scalar(2.0f)}, .counts = {{kCount, true}}});
    add({.values = {Tensor::scalar(3.0f)}, .counts = {{kCount, true}}});
    add({.error = Error(Code::kInternal, "y"), .counts = {{kCount, false}}});
    return all;
  }
  // That are somewhere, of those above.
  size_t known(const LandedResults& landed) const {
    return in_flight_.size() + holding_.size() + landed.finished.size() + landed.failed.size() +
           landed.returned.size() + landed.settled.size();
  }

  InFlightCalls in_flight_;
  HeldCalls holding_;
  uint64_t last_id_ = 0;
};

TEST_F(Landing, SortsTheClosures) {
  std::vector<Result> all = results();
  const auto first = in_flight_.find(1)->result;
  LandedResults landed(all.size());
  for (Result& result : all) landed.take(std::move(result), in_flight_, holding_);
  landed.settle(holding_);
  EXPECT_TRUE(in_flight_.empty());
  EXPECT_EQ(landed.finished.size(), 1u);
  EXPECT_EQ(first->wait({}).at(0).item(), 1);
  ASSERT_EQ(landed.failed.size(), 2u);
  EXPECT_EQ(landed.failed[0].second.message(), std::string(100, 'x'));
  EXPECT_EQ(landed.returned.size(), 1u);
  EXPECT_EQ(landed.held, 2u);
  EXPECT_EQ(landed.first, 2u);
  EXPECT_EQ(landed.executed(), 5u);
  EXPECT_EQ(landed.settled.size(), 2u) << "the last one has broken their sum off";
  EXPECT_EQ(landed.unsent, 2u);
  EXPECT_EQ(holding_.size(), 0u);
}

// Whichever allocation fails.
TEST_F(Landing, LosesNoClosureForLackOfMemory) {
  bool has_failed = true;
  for (int64_t allocations = 0; has_failed; ++allocations) {
    ASSERT_LT(allocations, 1000);
    SCOPED_TRACE(allocations);
    in_flight_ = {};
    holding_ = {};
    std::vector<Result> all = results();
    LandedResults landed(all.size());
    has_failed = false;
    allocations_left = allocations;
    for (Result& result : all) {
      try {
        landed.take(std::move(result), in_flight_, holding_);
      } catch (const std::bad_alloc&) {
        has_failed = true;
      }
    }
    allocations_left = -1;
    EXPECT_EQ(known(landed), all.size());
    EXPECT_EQ(in_flight_.empty(), !has_failed) << "what it failed for will be executed again";
  }
}

// Who waits to hear why a call has ended.
class Waiting final : public ClientStream::Listener {
 public:
  void received(const parameter_server::MessageReader&) override {}
  void drained() override {}
  void closed(const Error& reason) override { code_.set_value(reason.code()); }

  // Nothing where it has not ended in time.
  std::optional<Code> code() {
    if (ended_.wait_for(std::chrono::seconds(30)) != std::future_status::ready) return std::nullopt;
    return ended_.get();
  }

 private:
  std::promise<Code> code_;
  std::future<Code> ended_ = code_.get_future();
};

// The worker takes the connection, and says nothing.
TEST(Calling, EndsForLackOfMemoryForWhatAWorkerIsTold) {
  const net::Descriptor worker = net::listen_on({});
  const Address address =
      Address::parse(str("127.0.0.1:", net::InternetAddress::of(worker).port()));
  const coordination::Security security(
      {}, false, [](const std::string&) { return std::optional<std::string>(); });
  Waiting waiting;
  ClientStream stream(parameter_server::open_channel(address, security), waiting);
  parameter_server::Message message{.header = std::string(100, 'x'), .payload = {}};
  allocations_left = 0;
  stream.send(std::move(message));
  EXPECT_LT(std::exchange(allocations_left, -1), 0) << "one has failed";
  EXPECT_EQ(waiting.code(), Code::kResourceExhausted);
}

}  // namespace
}  // namespace cohort::testing
