// What strangers may send to a worker, and what becomes of it.
#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include <grpcpp/grpcpp.h>

#include "core/base/program.h"
#include "core/base/random.h"
#include "core/graph/serialization.h"
#include "proto/worker.pb.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/coordinator/assembler.h"
#include "strategies/coordinator/client_stream.h"
#include "strategies/coordinator/messages.h"
#include "strategies/parameter_server/link.h"
#include "tests/strategies/coordinator/testing.h"
#include "tests/testing/trials.h"

namespace cohort::testing {
namespace {

using namespace coordinator;
namespace wire = coordinator::proto;
using parameter_server::Message;

constexpr size_t kMaxBytes = 1 << 20;

// A caller that sends what it likes, and reads while `reading` is open.
class Stranger : public ClientStream::Listener {
 public:
  explicit Stranger(const Address& worker, Gate* reading = nullptr) : reading_(reading) {
    const coordination::Security security({}, false, no_environment);
    stream_ =
        std::make_unique<ClientStream>(parameter_server::open_channel(worker, security), *this);
  }
  void send(Message message) { stream_->send(std::move(message)); }
  void send(const ToWorker& message) { send(encode(message)); }
  // Whether all of that has been handed to the network.
  bool has_sent() const { return stream_->is_drained(); }
  // Why the worker has ended the call.
  Error wait_closed() {
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return closed_.has_value();
    }));
    const std::lock_guard lock(mutex_);
    return closed_.value_or(Error(Code::kUnknown, "not closed"));
  }
  // The worker takes it for the coordinator.
  bool wait_attached() {
    return eventually([&] {
      const std::lock_guard lock(mutex_);
      return is_attached_ || closed_;
    });
  }
  bool wait_results(size_t count) {
    return eventually([&] {
      const std::lock_guard lock(mutex_);
      return results_.size() >= count || closed_;
    });
  }
  std::vector<Result> results() {
    const std::lock_guard lock(mutex_);
    return results_;
  }

  void received(const parameter_server::MessageReader& part) override {
    if (reading_ != nullptr) reading_->pass();
    auto message = assembler_.take(part);
    const std::lock_guard lock(mutex_);
    if (!message) return;
    is_attached_ |= message->attached.has_value();
    std::ranges::move(message->results, std::back_inserter(results_));
  }
  void drained() override {}
  void closed(const Error& reason) override {
    const std::lock_guard lock(mutex_);
    closed_ = reason;
  }

 private:
  Gate* const reading_;
  std::mutex mutex_;
  std::vector<Result> results_;
  bool is_attached_ = false;
  std::optional<Error> closed_;
  Assembler<FromWorker> assembler_{decode_from_worker, kMaxBytes};
  std::unique_ptr<ClientStream> stream_;
};

Attach attach() {
  return {.job_id = "job",
          .task = "chief:0",
          .incarnation = 7,
          .worker = "worker:0",
          .worker_index = 0,
          .num_workers = 1};
}

class Hostile : public ::testing::Test {
 protected:
  // The worker still does its work.
  void expect_serving() {
    const auto coordinator = cluster_.coordinator();
    EXPECT_EQ(coordinator->schedule(doubled(), 2.0f).get(kPatience).item(), 4);
  }
  Error refusal(const Attach& attach) {
    Stranger stranger(cluster_.address(0));
    stranger.send({.attach = attach, .commands = {}});
    return stranger.wait_closed();
  }
  TestCluster cluster_{1};
};

#define EXPECT_REFUSED(error, error_code, part)                                   \
  do {                                                                            \
    const Error refused = (error);                                                \
    EXPECT_EQ(refused.code(), error_code) << refused.what();                      \
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.what(); \
  } while (false)

TEST_F(Hostile, StrangersAreRefusedWithBothNames) {
  Attach other = attach();
  other.job_id = "other job";
  EXPECT_REFUSED(refusal(other), Code::kFailedPrecondition, "\"other job\"");
  other = attach();
  other.task = "worker:3";
  EXPECT_REFUSED(refusal(other), Code::kPermissionDenied, "worker:3");
  other = attach();
  other.worker = "worker:5";
  EXPECT_REFUSED(refusal(other), Code::kFailedPrecondition, "takes it for worker:5");
  other = attach();
  other.worker_index = 4;
  EXPECT_REFUSED(refusal(other), Code::kInvalidArgument, "number 4 of 1");
  other = attach();
  other.servers.assign(2000, "127.0.0.1:1");
  EXPECT_REFUSED(refusal(other), Code::kInvalidArgument, "2000 parameter servers");
  other = attach();
  other.task = std::string(5000, 'x');
  EXPECT_REFUSED(refusal(other), Code::kInvalidArgument, "5000 bytes");
  EXPECT_EQ(cluster_.worker(0).refused(), 6u);
  expect_serving();
}

TEST_F(Hostile, AnotherVersionOfTheProtocolIsRefused) {
  Stranger stranger(cluster_.address(0));
  wire::ToWorker header;
  header.mutable_attach()->mutable_caller()->set_protocol(99);
  stranger.send({.header = header.SerializeAsString(), .payload = {}});
  EXPECT_REFUSED(stranger.wait_closed(), Code::kFailedPrecondition, "version 99");
}

TEST_F(Hostile, ACallBeginsWithWhoItIs) {
  Stranger stranger(cluster_.address(0));
  stranger.send(ToWorker{.attach = {}, .commands = {ShutDown{}}});
  EXPECT_REFUSED(stranger.wait_closed(), Code::kFailedPrecondition, "who it is");
  expect_serving();
}

TEST_F(Hostile, CallsThatSayNothingKeepNobodyAway) {
  std::vector<std::unique_ptr<Stranger>> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(std::make_unique<Stranger>(cluster_.address(0)));
  ASSERT_TRUE(eventually([&] { return cluster_.worker(0).refused() == 4; }));
  expect_serving();
}

TEST_F(Hostile, NoMemoryIsMadeForTensorsOfACallThatHasNotSaidWhoItIs) {
  Stranger stranger(cluster_.address(0));
  stranger.send({.attach = attach(),
                 .commands = {Create{.resource = 1, .what = CreateVariable{"v", floats({1})}}}});
  EXPECT_REFUSED(stranger.wait_closed(), Code::kResourceExhausted, "more than 0 bytes");
  expect_serving();
}

TEST_F(Hostile, AnEarlierStartOfTheCoordinatorIsRefused) {
  Stranger first(cluster_.address(0));
  first.send({.attach = attach(), .commands = {coordinator::Run{.id = 1}}});
  EXPECT_REFUSED(first.wait_closed(), Code::kFailedPrecondition, "who it is");
  Stranger second(cluster_.address(0));
  second.send({.attach = attach(), .commands = {}});
  EXPECT_TRUE(second.wait_attached());
  expect_serving();  // by a coordinator that has come later
  EXPECT_REFUSED(second.wait_closed(), Code::kAborted, "taken its place");
  EXPECT_REFUSED(refusal(attach()), Code::kFailedPrecondition, "started again since");
}

// It has been taken for the coordinator's, and there is no way to what it names.
TEST_F(Hostile, ACallThatCannotBeServedLeavesTheWorkerAlone) {
  const launcher::ReservedPort port;
  Lines lines;
  WorkerServer worker(
      Address::parse(port.address()),
      {.job_id = "job", .orphaned_after = milliseconds(20), .notice = lines.writer()},
      no_environment);
  std::thread waiting([&] { worker.wait(); });
  Stranger stranger(Address::parse(port.address()));
  Attach nowhere = attach();
  nowhere.servers = {"nowhere"};
  stranger.send({.attach = nowhere, .commands = {}});
  EXPECT_REFUSED(stranger.wait_closed(), Code::kInvalidArgument, "nowhere");
  EXPECT_TRUE(eventually([&] { return lines.has("no coordinator for 20 ms; ending"); }));
  request_stop(StopRequest::kInterrupt);  // else, where it does not end, neither does this
  waiting.join();
  init();
}

TEST_F(Hostile, BytesThatAreNoMessageEndTheCall) {
  const auto [seed, count] = trials(11, 50);
  RandomStream random(seed);
  for (uint64_t i = 0; i < count; ++i) {
    Stranger stranger(cluster_.address(0));
    if (i % 2 == 1) stranger.send({.attach = attach(), .commands = {}});
    std::string bytes(1 + random.below(200), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    bytes[0] = '\x0f';  // no field may begin so
    stranger.send({.header = bytes, .payload = {}});
    EXPECT_REFUSED(stranger.wait_closed(), Code::kInvalidArgument, "cannot be read");
  }
  expect_serving();
}

TEST_F(Hostile, BytesThatAreNoCallEndTheConnection) {
  const auto [seed, count] = trials(12, 20);
  RandomStream random(seed);
  for (uint64_t i = 0; i < count; ++i) {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(cluster_.address(0).port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    std::string bytes(1000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random.below(256));
    EXPECT_GT(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    close(socket);
  }
  expect_serving();
}

// Each of these is answered, and the call goes on.
TEST_F(Hostile, CommandsThatDoNotFitAreAnsweredWithErrors) {
  Stranger stranger(cluster_.address(0));
  stranger.send({.attach = attach(), .commands = {}});
  const auto bytes = [](const std::string& text) {
    return Tensor::from(std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()),
                        {static_cast<int64_t>(text.size())});
  };
  const auto define = [&](uint64_t function, Tensor graph) {
    return Define{.function = function, .signature = {}, .graphs = {std::move(graph)}, .error = {}};
  };
  // A value of 2^40 elements, made of one.
  GraphFunction huge;
  {
    const GraphScope scope(*huge.graph);
    huge.outputs = {ops::broadcast_to(ops::constant(1, DType::kFloat32), {int64_t{1} << 40})};
  }
  stranger.send(
      {.attach = {},
       .commands = {Fetch{.id = 1, .resource = 9},
                    coordinator::Run{
                        .id = 2, .function = 1, .arguments = {{.parameter = {}, .resource = 9}}},
                    define(2, bytes("no graph")), coordinator::Run{.id = 3, .function = 2},
                    define(3, Tensor::scalar(1.0f)), coordinator::Run{.id = 4, .function = 3},
                    define(4, bytes(serialize_function(huge))),
                    coordinator::Run{.id = 5, .function = 4},
                    Create{.resource = 5, .what = CreateIterator{"no such dataset"}},
                    Fetch{.id = 6, .resource = 5},
                    Create{.resource = 6, .what = coordinator::Run{.id = 0, .function = 77}},
                    Fetch{.id = 7, .resource = 6}, Drop{99}, Recall{}, Cancel{}}});
  ASSERT_TRUE(stranger.wait_results(7));
  // What was still waiting has been recalled; all has been answered.
  for (const Result& result : stranger.results())
    EXPECT_TRUE(result.error || result.returned) << result.id;
  stranger.send({.attach = {}, .commands = {AskStatus{1}}});
  expect_serving();
}

// As where a worker has no memory for it: whoever fetches it, or uses it, hears why.
TEST_F(Hostile, AVariableThatCannotBeMadeIsNamed) {
  Stranger stranger(cluster_.address(0));
  stranger.send({.attach = attach(), .commands = {}});
  GraphFunction reads;
  {
    const GraphScope scope(*reads.graph);
    const auto variable =
        make_local_variable({.name = "sum#17", .spec = {DType::kFloat32, {}}, .initial_value = [] {
                               return Tensor::scalar(0.0f);
                             }});
    reads.outputs = {variable->read()};
  }
  const std::string graph = serialize_function(reads);
  const Tensor bytes =
      Tensor::from(std::span(reinterpret_cast<const uint8_t*>(graph.data()), graph.size()),
                   {static_cast<int64_t>(graph.size())});
  stranger.send(
      {.attach = {},
       .commands = {
           Create{.resource = 5,
                  .what = CreateVariable{"sum#17", Tensor::scalar(0.0f), Synchronization::kAuto,
                                         Aggregation::kNone, KeptApart::kSum}},
           Fetch{.id = 1, .resource = 5},
           Define{.function = 1, .signature = {}, .graphs = {bytes}, .error = {}},
           coordinator::Run{.id = 2, .function = 1}}});
  ASSERT_TRUE(stranger.wait_results(2));
  for (const Result& result : stranger.results()) {
    ASSERT_TRUE(result.error) << result.id;
    EXPECT_REFUSED(*result.error, Code::kInvalidArgument,
                   "variable \"sum\": a sum, or its count, has no value");
  }
  expect_serving();
}

// Questions cost it nothing, and their answers stay with the worker.
TEST_F(Hostile, WhoDoesNotReadTheAnswersIsNotServedForEver) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "under ThreadSanitizer keepalive ends the call before there are enough answers";
#endif
  Gate reading;
  Stranger stranger(cluster_.address(0), &reading);
  const OpenInTheEnd guard(reading);
  stranger.send({.attach = attach(), .commands = {}});
  ASSERT_TRUE(stranger.wait_attached());
  reading.close();
  const ToWorker questions{.attach = {}, .commands = std::vector<Command>(20'000, AskStatus{1})};
  EXPECT_TRUE(eventually([&] {
    if (stranger.has_sent()) stranger.send(questions);
    return cluster_.worker(0).refused() == 1;
  }));
  expect_serving();
  reading.open();
  EXPECT_REFUSED(stranger.wait_closed(), Code::kResourceExhausted, "answers wait to be read");
}

TEST_F(Hostile, MalformedCommandsEndTheCall) {
  const auto refusal_of = [&](const std::function<void(wire::Command&)>& fill) {
    Stranger stranger(cluster_.address(0));
    stranger.send({.attach = attach(), .commands = {}});
    wire::ToWorker header;
    fill(*header.add_commands());
    stranger.send({.header = header.SerializeAsString(), .payload = {}});
    return stranger.wait_closed();
  };
  const auto value = [&](const std::function<void(wire::Value&)>& fill) {
    return refusal_of([&](wire::Command& command) {
      fill(*command.mutable_run()->add_arguments()->mutable_tensors()->add_values());
    });
  };
  EXPECT_REFUSED(refusal_of([](wire::Command&) {}), Code::kInvalidArgument, "no kind");
  EXPECT_REFUSED(value([](wire::Value& v) { v.set_dtype(99); }), Code::kInvalidArgument,
                 "not a dtype");
  EXPECT_REFUSED(value([](wire::Value& v) { v.add_shape(-1); }), Code::kInvalidArgument, "");
  EXPECT_REFUSED(value([](wire::Value& v) {
                   for (int i = 0; i < 9; ++i) v.add_shape(1);
                 }),
                 Code::kInvalidArgument, "");
  EXPECT_REFUSED(value([](wire::Value& v) {
                   v.add_shape(int64_t{1} << 40);
                   v.add_shape(int64_t{1} << 40);
                 }),
                 Code::kInvalidArgument, "");
  EXPECT_REFUSED(value([](wire::Value& v) {
                   v.add_shape(2);
                   v.set_data("123");
                 }),
                 Code::kInvalidArgument, "comes with 3 bytes");
  EXPECT_REFUSED(value([](wire::Value& v) {
                   v.add_shape(int64_t{1} << 61);
                   v.set_payload_bytes(uint64_t{1} << 63);
                   v.set_dtype(static_cast<int>(DType::kUInt8));
                 }),
                 Code::kInvalidArgument, "comes with");
  EXPECT_REFUSED(value([](wire::Value& v) {
                   v.add_shape(int64_t{1} << 40);
                   v.set_payload_bytes(uint64_t{1} << 42);
                 }),
                 Code::kResourceExhausted, "more than");
  EXPECT_REFUSED(refusal_of([](wire::Command& command) {
                   command.mutable_run()->add_arguments()->mutable_tensors();
                 }),
                 Code::kInvalidArgument, "0 tensors where 1");
  EXPECT_REFUSED(refusal_of([](wire::Command& command) { command.mutable_create(); }),
                 Code::kInvalidArgument, "no number");
  expect_serving();
}

TEST(Messages, HaveBoolsThatAreZeroOrOne) {
  Tensor inside(DType::kBool, {3}), behind(DType::kBool, {5000});
  for (Tensor* tensor : {&inside, &behind}) std::memset(tensor->raw(), 2, tensor->bytes());
  const Message sent = encode(FromWorker{.results = {{.id = 1, .values = {inside, behind}}}});
  ASSERT_EQ(sent.payload.size(), 1u);
  auto received = decode_from_worker(sent.header, kMaxBytes);
  received.targets.take(sent.payload[0].data, sent.payload[0].bytes);
  for (const Tensor& value : received.message.results.at(0).values)
    EXPECT_EQ(std::string(static_cast<const char*>(value.raw()), value.bytes()),
              std::string(value.bytes(), '\1'));
}

TEST(Messages, HaveAThousandCountsOfAResultAtMost) {
  FromWorker message;
  Result& result = message.results.emplace_back();
  for (uint64_t i = 1; i <= 1024; ++i) result.counts[i] = true;
  const auto received = decode_from_worker(encode(message).header, kMaxBytes);
  EXPECT_EQ(received.message.results.at(0).counts, result.counts);
  result.counts[1025] = true;
  EXPECT_ERROR(decode_from_worker(encode(message).header, kMaxBytes), Code::kInvalidArgument,
               "1025 counts");
}

TEST(Messages, OutliveAnyDamage) {
  const auto [seed, count] = trials(13, 20'000);
  RandomStream random(seed);
  const ToWorker message{
      .attach = attach(),
      .commands = {coordinator::Run{.id = 1,
                                    .function = 2,
                                    .arguments = {{.parameter = {true, {"a", "b"}},
                                                   .tensors = {floats({1, 2}), floats({3})}},
                                                  {.parameter = {}, .tensors = {}, .resource = 4}}},
                   Create{.resource = 3, .what = CreateVariable{"v", floats({1})}}, Drop{3}}};
  const std::string header = encode(message).header;
  int whole = 0;
  for (uint64_t i = 0; i < count; ++i) {
    std::string damaged = header;
    for (uint64_t n = 1 + random.below(4); n > 0; --n)
      damaged[random.below(damaged.size())] = static_cast<char>(random.below(256));
    if (random.below(4) == 0) damaged.resize(random.below(damaged.size()));
    try {
      decode_to_worker(damaged, kMaxBytes);
      ++whole;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), Code::kInternal) << error.what();
    }
  }
  EXPECT_GT(whole, 0) << "some damage is to names and numbers alone";
}

}  // namespace
}  // namespace cohort::testing
