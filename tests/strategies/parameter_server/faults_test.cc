// Servers as processes that run out of something, or have callers who mean no good.
#include <algorithm>
#include <cmath>
#include <future>
#include <memory>
#include <sys/resource.h>
#include <sys/socket.h>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/generic/generic_stub.h>

#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/host/shared_region.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/spec_message.h"
#include "tests/strategies/cluster/net/http2_frames.h"
#include "tests/strategies/parameter_server/process.h"
#include "tests/strategies/parameter_server/raw_requests.h"
#include "tests/testing/certificates.h"
#include "tests/testing/eventually.h"

namespace cohort::testing {
namespace {

using parameter_server::Link;
using parameter_server::proto::Request;
constexpr size_t kMiB = 1 << 20;

// A server in a process of its own, and a client with shard "w".
class FaultyServer : public ::testing::Test {
 protected:
  FaultyServer() {
    process_ = std::make_unique<Process>(
        "tests/strategies/parameter_server/actor",
        std::vector<std::string>{"server", port_.address(), folder_.path() + "/ps-0"},
        folder_.path() + "/out",
        // Each thread would take address space of its own.
        std::map<std::string, std::string>{{"MALLOC_ARENA_MAX", "1"}});
    EXPECT_TRUE(process_->wait_for_lines("serving", 1));
    client_ = client("worker:0");
    client_->create(spec_, [] { return floats({0, 0, 0, 0}); });
  }

  std::unique_ptr<ParameterClient> client(const std::string& task,
                                          Transport way = transport()) const {
    return std::make_unique<ParameterClient>(
        Address::parse(port_.address()),
        ParameterClientOptions{
            .task = task, .job_id = "job", .timeout = std::chrono::seconds(20), .transport = way},
        no_environment);
  }
  void limit(__rlimit_resource resource, rlim_t value) const {
    ASSERT_TRUE(process_->limit(resource, value));
  }
  size_t memory(const std::string& name) const {
    const size_t bytes = process_->memory(name);
    EXPECT_GT(bytes, 0u) << name;
    return bytes;
  }
  // That nothing has happened to what it has.
  void expect_well() {
    const auto other = client("worker:9");
    EXPECT_EQ(values_of(fetch(*other, spec_)), (std::vector<float>(4)));
    EXPECT_EQ(values_of(fetch(*client_, spec_)), (std::vector<float>(4)));
    client_->push({.shard = "w", .gradient = floats({-1, 0, 0, 0}), .learning_rate = 1});
    EXPECT_EQ(values_of(fetch(*client_, spec_)), (std::vector<float>{1, 0, 0, 0}));
  }

  const TemporaryFolder folder_{"ps"};
  const launcher::ReservedPort port_;
  const ShardSpec spec_ = whole_shard("w", kFour);
  std::unique_ptr<Process> process_;
  std::unique_ptr<ParameterClient> client_;
};

TEST_F(FaultyServer, ServesAgainAfterItHadNoDescriptorsLeft) {
  limit(RLIMIT_NOFILE, 64);
  const auto address = net::InternetAddress::parse(port_.address(), "the server");
  std::vector<net::Descriptor> flood;
  for (int i = 0; i < 200; ++i) flood.push_back(net::start_connecting(address));
  for (const char* byte = "P"; const auto& socket : flood)
    (void)send(socket.get(), byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  EXPECT_EQ(client_->statistics().shards, 1u) << "who is connected is served meanwhile";
  flood.clear();
  const auto ended = std::chrono::steady_clock::now();
  EXPECT_EQ(client("worker:1")->statistics().shards, 1u);
  EXPECT_LT(std::chrono::steady_clock::now() - ended, std::chrono::seconds(10))
      << "5 s, on a machine that is not busy";
  expect_well();
}

// The same of callers of its own host. With an odd number of descriptors and with an even one: it
// may be the first or the second thing that a caller needs which there is none for.
TEST_F(FaultyServer, ServesItsHostAgainAfterItHadNoDescriptorsLeft) {
  const auto offer = upgrade_of(Address::parse(port_.address()), host_identity());
  ASSERT_FALSE(offer.socket().empty());
  client_->statistics();
  for (const rlim_t descriptors : {64, 65}) {
    limit(RLIMIT_NOFILE, descriptors);
    std::vector<net::Descriptor> flood;
    for (int i = 0; i < 200; ++i)
      flood.push_back(parameter_server::connect_locally(offer.socket()));
    EXPECT_EQ(client_->statistics().shards, 1u) << "who is connected is served meanwhile";
  }
  limit(RLIMIT_NOFILE, 1024);
  expect_well();
}

// Memory is taken by bytes that have come, not by what a request says of them.
TEST_F(FaultyServer, DoesNotPayForClaims) {
  const size_t before = memory("VmRSS");
  const auto channel = grpc::CreateChannel(port_.address(), grpc::InsecureChannelCredentials());
  std::vector<std::unique_ptr<Link>> links;
  const auto say = [&](const Request& asking) {
    links.push_back(std::make_unique<Link>(channel, Link::Unconnected::kWait));
    ASSERT_TRUE(links.back()->connect(soon()));
    links.back()->send({.header = asking.SerializeAsString(), .payload = {}}, soon());
  };
  for (int i = 0; i < 16; ++i) {
    Request asking = request(str("worker:", 20 + i));
    const TensorSpec large{DType::kFloat32, {int64_t{256} << 20}};
    parameter_server::write_shard_spec(whole_shard(str("large ", i), large),
                                       asking.mutable_create());
    asking.mutable_create()->set_payload_bytes(large.bytes());
    say(asking);
    asking.clear_create();
    auto& push = *asking.mutable_update()->add_pushes();
    push.set_shard("w");
    push.set_sequence(1);
    push.set_rows(1 << 25);
    push.set_payload_bytes((sizeof(int64_t) + sizeof(float)) << 25);
    say(asking);
  }
  expect_well();
  EXPECT_LT(memory("VmRSS"), before + 64 * kMiB) << "of 22 GiB that were spoken of";
}

// Messages beyond the limit, and some that are none, for as long as anybody likes to send them.
TEST_F(FaultyServer, AStreamOfNonsenseLeavesItAsItWas) {
  using parameter_server::kMaxHeaderBytes, parameter_server::kMaxMessageBytes;
  const auto channel = grpc::CreateChannel(port_.address(), grpc::InsecureChannelCredentials());
  const auto code_of = [&](const std::string& header) {
    Link link(channel, Link::Unconnected::kWait);
    EXPECT_TRUE(link.connect(soon()));
    return error_of([&] {
             link.send({.header = header, .payload = {}}, soon());
             link.receive(
                 {.begin = [](const std::string&, size_t) {}, .take = [](const char*, size_t) {}},
                 soon());
           })
        .code();
  };
  const auto flood = [&](int rounds) {
    size_t most = 0;
    for (; rounds > 0; --rounds) {
      EXPECT_EQ(code_of(std::string(kMaxMessageBytes + 1, 'x')), Code::kResourceExhausted);
      EXPECT_EQ(code_of(std::string(kMaxHeaderBytes, '\xff')), Code::kInvalidArgument);
      EXPECT_EQ(code_of(push_header(UINT64_MAX)), Code::kInvalidArgument);
      EXPECT_EQ(values_of(fetch(*client_, spec_)), (std::vector<float>(4)));
      most = std::max(most, memory("VmRSS"));
    }
    return most;
  };
  [[maybe_unused]] const size_t usual = flood(10);
  [[maybe_unused]] const size_t most = flood(30);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LE(most, usual + 2 * size_t{kMaxMessageBytes});
#endif
  expect_well();
}

// A request whose field of this number is a message of nothing but empty fields `inner`.
std::string crowded(std::string header, int field, int inner) {
  constexpr int kParts = 3 << 20;
  {
    google::protobuf::io::StringOutputStream bytes(&header);
    google::protobuf::io::CodedOutputStream out(&bytes);
    out.WriteTag((field << 3) | 2);
    out.WriteVarint32(2 * kParts);
    for (int i = 0; i < kParts; ++i) {
      out.WriteTag((inner << 3) | 2);
      out.WriteVarint32(0);
    }
  }
  return header;
}

TEST_F(FaultyServer, TakesNoMemoryForCrowdsOfParts) {
  const std::string good = request().SerializeAsString();
  const std::vector<std::pair<std::string, Code>> headers = {
      {crowded(good, Request::kUpdateFieldNumber,
               parameter_server::proto::Update::kPushesFieldNumber),
       Code::kResourceExhausted},
      {crowded(good, Request::kCallerFieldNumber, 15), Code::kResourceExhausted},  // unknown ones
      // Groups of nothing but groups, none of which there is.
      {good + std::string(3 << 20, '\x7b') + std::string(3 << 20, '\x7c'), Code::kInvalidArgument}};
  client_->statistics();
  [[maybe_unused]] const size_t before = memory("VmHWM");
  const auto channel = grpc::CreateChannel(port_.address(), grpc::InsecureChannelCredentials());
  for (const auto& [header, code] : headers) {
    Link link(channel, Link::Unconnected::kWait);
    ASSERT_TRUE(link.connect(soon()));
    EXPECT_EQ(error_of([&, &header = header] {
                link.send({.header = header, .payload = {}}, soon());
                link.receive({.begin = [](const std::string&, size_t) {},
                              .take = [](const char*, size_t) {}},
                             soon());
              }).code(),
              code);
  }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which keep what was freed
  EXPECT_LT(memory("VmHWM"), before + 100 * kMiB);
#endif
  expect_well();
}

// gRPC itself looks at the size of a message when it has all of it.
TEST_F(FaultyServer, DoesNotHoldAMessageThatIsFarTooLarge) {
  grpc::GenericStub stub(grpc::CreateChannel(port_.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  const grpc::Slice large(std::string(96 * kMiB, 'x'));
  const grpc::ByteBuffer asking(&large, 1);
  grpc::ByteBuffer answer;
  const auto ended = std::make_shared<std::promise<grpc::StatusCode>>();
  const size_t before = memory("VmHWM");
  stub.UnaryCall(&context, parameter_server::kMethod, grpc::StubOptions(), &asking, &answer,
                 [ended](const grpc::Status& status) { ended->set_value(status.error_code()); });
  EXPECT_EQ(ended->get_future().get(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_LT(memory("VmHWM"), before + 48 * kMiB);
  expect_well();
}

TEST_F(FaultyServer, CutsOffAnEndlessHeaderBlock) {
  const std::string more = http2::frame(http2::kContinuation, 0, 1, std::string(1024, 'x'));
  EXPECT_LT(http2::copies_taken(port_.address(), http2::frame(http2::kHeaders, 0, 1, "x"), more,
                                64 << 10),
            64 << 10);
  expect_well();
}

// What a compressed message would become has no limit: it is taken as it is, and is none.
TEST_F(FaultyServer, DoesNotDecompress) {
  grpc::GenericStub stub(grpc::CreateChannel(port_.address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  const grpc::Slice large(std::string(2 * size_t{parameter_server::kMaxMessageBytes}, 'x'));
  const grpc::ByteBuffer asking(&large, 1);
  grpc::ByteBuffer answer;
  const auto ended = std::make_shared<std::promise<grpc::StatusCode>>();
  stub.UnaryCall(&context, parameter_server::kMethod, grpc::StubOptions(), &asking, &answer,
                 [ended](const grpc::Status& status) { ended->set_value(status.error_code()); });
  EXPECT_EQ(ended->get_future().get(), grpc::StatusCode::INVALID_ARGUMENT);
  expect_well();
}

// A request that there is no memory for is refused, and nothing else.
TEST_F(FaultyServer, RefusesWhatItHasNoMemoryFor) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer needs the address space for itself";
#endif
  client_->statistics();
  limit(RLIMIT_AS, memory("VmSize") + 512 * kMiB);
  const TensorSpec large{DType::kFloat32, {int64_t{256} << 20}};
  const ShardSpec shard = whole_shard("large", large);
  for (const Transport way : {Transport::kGrpc, Transport::kDirect, Transport::kSharedMemory}) {
    const auto greedy = client("worker:1", way);
    EXPECT_ERROR(greedy->create(shard, [&] { return Tensor(large.dtype, large.shape); }),
                 Code::kResourceExhausted, "memory");
    ASSERT_FALSE(HasFailure()) << read_file(folder_.path() + "/out");
  }
  expect_well();
}

// --- Who may not come at all

TEST(Strangers, AreTurnedAwayBeforeAnyRequest) {
  const Certificates certificates;
  certificates.sign("expired", Certificates::kNames, "ca", 0);
  certificates.sign("stranger", Certificates::kNames, "other-ca");
  TestServer server({.tls = certificates.files()});
  const std::pair<const char*, TlsFiles> strangers[] = {
      {"no certificate", {}},
      {"of another authority", certificates.files("stranger", "both-cas")},
      {"that trusts another authority", certificates.files("stranger", "other-ca")},
      {"out of date", certificates.files("expired")}};
  for (const auto& [what, tls] : strangers)
    for (const Transport way : {Transport::kGrpc, Transport::kDirect, Transport::kSharedMemory}) {
      const Error error = error_of([&, &tls = tls] {
        ParameterClient stranger(server.address(),
                                 {.task = "worker:0",
                                  .job_id = "job",
                                  .timeout = milliseconds(300),
                                  .transport = way,
                                  .tls = tls},
                                 no_environment);
        stranger.statistics();
      });
      const bool is_gone =
          error.code() == Code::kUnavailable || error.code() == Code::kDeadlineExceeded;
      EXPECT_TRUE(is_gone || error.message().find("has expired") != std::string::npos)
          << what << ": " << error.what();
    }
  EXPECT_EQ(server->statistics().sessions, 0u);
  EXPECT_EQ(server->statistics().requests_refused, 0u) << "nobody has come as far as a request";
  ParameterClient friendly(server.address(),
                           {.task = "worker:0", .job_id = "job", .tls = certificates.files()},
                           no_environment);
  EXPECT_GE(friendly.statistics().sessions, 1u) << "who may come is served";
}

TEST(Strangers, AreToldThatItMayBeForTheirCertificates) {
  const Certificates certificates;
  certificates.sign("stranger", Certificates::kNames, "other-ca");
  TestServer with({.tls = certificates.files()}), without;
  const auto error_at = [](const TestServer& server, const TlsFiles& tls) {
    return error_of([&] {
             ParameterClient(
                 server.address(),
                 {.task = "worker:0", .job_id = "job", .timeout = milliseconds(300), .tls = tls},
                 no_environment)
                 .statistics();
           })
        .message();
  };
  // On a busy machine the time may be over before gRPC has seen the end of a connection.
  const auto are_told = [&](const TestServer& server, const TlsFiles& tls, const char* what) {
    std::string message;
    EXPECT_TRUE(eventually([&] {
      message = error_at(server, tls);
      return message.find(what) != std::string::npos &&
             message.find("hangs up like this") != std::string::npos;
    })) << message;
  };
  are_told(with, {}, "this task has no certificates");
  are_told(with, certificates.files("stranger", "both-cas"), "this task has certificates");
  are_told(with, certificates.files("stranger", "other-ca"), "this task has certificates");
  are_told(without, certificates.files(), "this task has certificates");
  without.stop();
  EXPECT_EQ(error_at(without, certificates.files()).find("certificates"), std::string::npos)
      << "where nobody is";
}

}  // namespace
}  // namespace cohort::testing
