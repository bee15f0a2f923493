#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/graph/op.h"
#include "core/kernels/kernel.h"
#include "core/ops/math_ops.h"
#include "strategies/collective/host/process_identity.h"
#include "strategies/parameter_server/direct_link.h"
#include "strategies/parameter_server/local_link.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/strategies/parameter_server/testing.h"
#include "tests/testing/eventually.h"

// A server whose requests wait for each other is not taken for one that has gone.
namespace cohort::testing {
namespace {

using parameter_server::Link;
using parameter_server::Piece;
using parameter_server::proto::Request;

const TensorSpec kFour{DType::kFloat32, {4}};

// Where updates wait while it is closed; for ever, as callers see it.
class Gate {
 public:
  void close() { set(true); }
  void open() { set(false); }
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.wait_for(lock, kPatience, [this] { return !closed_; });
    --waiting_;
  }
  bool holds_somebody() const {
    const std::lock_guard lock(mutex_);
    return waiting_ > 0;
  }

 private:
  void set(bool closed) {
    const std::lock_guard lock(mutex_);
    closed_ = closed;
    changed_.notify_all();
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false;
  int waiting_ = 0;
};

Gate& gate() {
  static Gate the_gate;
  return the_gate;
}

void pass_gate(const KernelCall& call, const KernelContext& context) {
  gate().pass();
  std::memcpy(context.outputs[0], context.inputs[0], call.input_specs[0].bytes());
}

COHORT_REGISTER_OP({.name = "TestGate",
                    .num_inputs = 1,
                    .infer = [](const InferenceContext& c) { return c.inputs; },
                    .gradient = no_gradient});
COHORT_REGISTER_KERNEL("TestGate", kCpu, stateless_kernel(pass_gate));

// Gradient descent, at the gate while it holds the shard's lock.
class GatedRule final : public optim::UpdateRule {
 public:
  std::vector<Slot> slots() const override { return {}; }
  std::vector<Value> scalars(const Value& learning_rate, const Value& /*step*/) const override {
    return {learning_rate};
  }
  Value update(const Value& variable, const Value& gradient, std::vector<Value>& /*slots*/,
               const std::vector<Value>& scalars) const override {
    return variable - gradient.graph().add("TestGate", {gradient}).output() * scalars[0];
  }
};

// Less than a request has to wait. By gRPC a server is asked for a sign of life after two seconds.
constexpr milliseconds kShort(1000);
milliseconds longer() {
  return transport() == Transport::kGrpc ? milliseconds(4500) : milliseconds(3000);
}

class BusyServer : public ::testing::Test {
 protected:
  BusyServer() {
    ShardSpec spec = whole_shard("w", kFour);
    spec.update = trace_update(GatedRule(), kFour);
    holder_->create(spec, [] { return floats({0, 0, 0, 0}); });
  }
  ~BusyServer() override { gate().open(); }

  // A push that has the shard's lock until the gate opens.
  std::future<void> hold() {
    gate().close();
    auto held = std::async(std::launch::async, [this] {
      holder_->push({.shard = "w", .gradient = floats({-1, -1, -1, -1}), .learning_rate = 1});
    });
    EXPECT_TRUE(eventually([] { return gate().holds_somebody(); }));
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

  const Folder folder_;
  const coordination::Security security_{{}, false, no_environment};
  TestServer server_;
  const std::unique_ptr<ParameterClient> holder_ = server_.client("worker:1");
  std::vector<std::unique_ptr<Link>> links_;
};

// All that needs the lock of a shard waits for it. There are more such requests than gRPC has
// threads of its own on most machines: one for two cores.
TEST_F(BusyServer, ShowsThatItLivesToAllWhoWaitForALock) {
  auto held = hold();
  std::vector<std::future<Error>> answers;
  for (int i = 0; i < 3; ++i) {
    answers.push_back(ask(push(), {-1, -1, -1, -1}));
    answers.push_back(ask(pull()));
    answers.push_back(ask(pull(2)));
  }
  EXPECT_EQ(answers.front().wait_for(longer()), std::future_status::timeout) << "it was given up";
  gate().open();
  for (auto& answer : answers) EXPECT_EQ(answer.get().message(), "no error");
  held.get();
  EXPECT_EQ(values_of(fetch(*holder_, whole_shard("w", kFour))), (std::vector<float>(4, 2)))
      << "worker:7 has pushed the same three times";
}

TEST_F(BusyServer, ShowsThatItLivesDuringASnapshot) {
  auto held = hold();
  auto answer = ask(snapshot(folder_.path() + "/saved"));
  EXPECT_EQ(answer.wait_for(longer()), std::future_status::timeout) << "it was given up";
  gate().open();
  EXPECT_EQ(answer.get().message(), "no error");
  held.get();
}

}  // namespace
}  // namespace cohort::testing
