#include "benchmarks/attack_tasks.h"

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "benchmarks/mirrored_trainer.h"
#include "benchmarks/task_process.h"
#include "core/base/error.h"
#include "core/base/program.h"
#include "core/base/random.h"
#include "core/optim/optimizers.h"
#include "proto/coordination.pb.h"
#include "proto/parameter_server.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/cluster/literal_resolver.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/parameter_server/client.h"
#include "strategies/parameter_server/server.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::benchmarks {
namespace {

namespace pb = parameter_server::proto;

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kJobId[] = "attacked";
constexpr int64_t kElements = 1024;
constexpr milliseconds kPause(1);
constexpr char kAttend[] = "/cohort.proto.Coordination/Attend";
// Of an attacker's call, which is refused sooner.
constexpr std::chrono::seconds kAnswerTime(5);

// --- Clients

void call_again_and_again(milliseconds pause, const std::function<void()>& call,
                          const std::function<bool()>& is_over = interrupted) {
  const CatchTermination catching;
  while (!is_over()) {
    std::this_thread::sleep_for(pause);
    const auto begin = Clock::now();
    call();
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    say(str("call ", time.count()));
  }
}

std::string shard_of(const std::string& task) { return "counter of " + task; }
TensorSpec own_spec() { return {DType::kFloat32, {kElements}}; }

// That of a task, whose shard the server then has.
std::unique_ptr<ParameterClient> with_own_shard(const Address& server, const std::string& task) {
  auto client = std::make_unique<ParameterClient>(
      server,
      ParameterClientOptions{.task = task, .job_id = kJobId, .transport = Transport::kDirect});
  const TensorSpec spec = own_spec();
  const std::string name = shard_of(task);
  client->create({.name = name,
                  .variable = name,
                  .whole = spec,
                  .rows = kElements,
                  .update = trace_update(optim::SGD(1.0).rule(), spec)},
                 [&] { return Tensor::zeros(spec.dtype, spec.shape); });
  return client;
}

// Until it is to end; leaves the cores to those who are measured.
void idle() {
  const CatchTermination catching;
  say("up");
  while (!interrupted()) std::this_thread::sleep_for(milliseconds(20));
}

std::unique_ptr<Membership> join(const ClusterSpec& cluster, int rank, const TlsFiles& tls = {}) {
  return Membership::join(LiteralResolver(cluster, {.task_type = "worker", .task_id = rank}),
                          {.tls = tls, .job_id = kJobId});
}

// --- Calls of attackers

struct Answer {
  grpc::StatusCode code = grpc::StatusCode::UNKNOWN;
  std::string message;
  // Somebody has looked at the call.
  bool is_there() const {
    return code != grpc::StatusCode::UNAVAILABLE && code != grpc::StatusCode::DEADLINE_EXCEEDED;
  }
};

std::string bytes_of(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Valid() || !buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

// To a call with `message` as its only one.
Answer answer_to(const std::string& message, const char* method,
                 const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kAnswerTime);
  const grpc::Slice slice(message);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  const auto ended = std::make_shared<std::promise<grpc::StatusCode>>();
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [ended](const grpc::Status& status) { ended->set_value(status.error_code()); });
  const grpc::StatusCode code = ended->get_future().get();
  return {code, bytes_of(response)};
}

// What is sent to a server that has to refuse all of it.
struct Hostility {
  const char* method;
  std::vector<std::string> messages;
  bool (*is_refusal)(const std::string& answer);  // where a call ends well
  // As they are but for what is wrong with them: accepted. Empty where there is no such message.
  std::string flawless = {};
};

void attack(const Address& server, const Hostility& hostility, milliseconds pause) {
  coordination::keep_grpc();
  const auto channel = grpc::CreateChannel(server.text(), grpc::InsecureChannelCredentials());
  if (!hostility.flawless.empty() &&
      answer_to(hostility.flawless, hostility.method, channel).code != grpc::StatusCode::OK)
    fail(Code::kInternal,
         "a message without a flaw was refused, so that it says nothing that others are");
  for (size_t i = 0;; i = (i + 1) % hostility.messages.size()) {
    const Answer answer = answer_to(hostility.messages[i], hostility.method, channel);
    if (!answer.is_there()) fail(Code::kInternal, "hostile message ", i, " was not answered");
    if (answer.code == grpc::StatusCode::OK && !hostility.is_refusal(answer.message))
      fail(Code::kInternal, "hostile message ", i, " was accepted");
    say("refused");
    std::this_thread::sleep_for(pause);
  }
}

// --- What is hostile to a parameter server

pb::RequestMessage request() {
  pb::RequestMessage message;
  auto& caller = *message.mutable_header()->mutable_caller();
  caller.set_protocol(parameter_server::kProtocolVersion);
  caller.set_job_id(kJobId);
  caller.set_task("worker:99");
  caller.set_incarnation(1);
  return message;
}

// Of zeros, which change nothing.
std::string push(const std::function<void(pb::Push&)>& spoil) {
  pb::RequestMessage message = request();
  pb::Push& push = *message.mutable_header()->mutable_update()->add_pushes();
  push.set_shard(shard_of("worker:0"));
  push.set_sequence(1);
  push.set_learning_rate(1);
  push.set_rows(-1);
  message.set_payload(std::string(kElements * sizeof(float), '\0'));
  push.set_payload_bytes(message.payload().size());
  spoil(push);
  return message.SerializeAsString();
}

std::string create(const std::vector<int64_t>& shape, int dtype) {
  pb::RequestMessage message = request();
  pb::Create& create = *message.mutable_header()->mutable_create();
  create.set_shard("new");
  create.set_variable("new");
  create.set_dtype(dtype);
  for (const int64_t extent : shape) create.add_shape(extent);
  create.set_rows(shape[0]);
  create.set_row_block(1);
  message.set_payload(std::string(kElements * sizeof(float), '\0'));
  create.set_payload_bytes(message.payload().size());
  return message.SerializeAsString();
}

Hostility hostile_requests() {
  using parameter_server::kMaxMessageBytes;
  constexpr int kFloat32 = static_cast<int>(DType::kFloat32);
  constexpr int64_t kHuge = int64_t{1} << 40;
  return {
      .method = parameter_server::kMethod,
      .messages = {std::string(kMaxMessageBytes + (5 << 20), 'x'),
                   std::string(kMaxMessageBytes, '\xff'),
                   push([](pb::Push& p) { p.set_shard("of nobody"); }),
                   push([](pb::Push& p) { p.set_learning_rate(NAN); }),
                   push([](pb::Push& p) { p.set_payload_bytes(UINT64_MAX); }),
                   push([](pb::Push& p) { p.set_rows(INT64_MAX); }),
                   push([](pb::Push& p) { p.set_encoding(77); }), create({-4}, kFloat32),
                   create({kHuge, kHuge}, kFloat32), create({kHuge}, kFloat32), create({4}, 99)},
      .is_refusal = [](const std::string&) { return false; },
      .flawless = push([](pb::Push&) {})};
}

// --- And to a leader

std::string join_of_another_job(size_t job_id_bytes) {
  proto::FromMember message;
  message.mutable_join()->set_protocol(coordination::kProtocolVersion);
  message.mutable_join()->set_job_id(std::string(job_id_bytes, 'x'));
  return message.SerializeAsString();
}

Hostility hostile_members() {
  proto::FromMember report, early;
  report.mutable_report()->set_message(std::string(coordination::kMaxMessageBytes, 'x'));
  early.mutable_request()->mutable_set()->set_key("key");
  early.mutable_request()->mutable_set()->set_value(
      std::string(KeyValueStore::kMaxValueBytes, 'x'));
  return {
      .method = kAttend,
      .messages = {report.SerializeAsString(), std::string(coordination::kMaxMessageBytes, '\xff'),
                   early.SerializeAsString(), join_of_another_job(KeyValueStore::kMaxValueBytes),
                   std::string()},
      .is_refusal = [](const std::string& answer) {
        proto::FromLeader said;
        // To who does not join it says nothing.
        return answer.empty() || (said.ParseFromString(answer) && said.has_refused());
      }};
}

// --- Strangers

// Over a connection of its own: calls over one channel share theirs.
Answer call_leader_once(const Address& leader,
                        const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return answer_to(join_of_another_job(8), kAttend,
                   grpc::CreateCustomChannel(leader.text(), credentials, arguments));
}

std::shared_ptr<grpc::ChannelCredentials> credentials_of(const TlsFiles& files) {
  return coordination::channel_credentials(
      coordination::Security(files, false, process_environment));
}

// Once it has had its time.
bool is_connected(const net::Descriptor& socket) {
  pollfd polled{socket.get(), POLLOUT, 0};
  return poll(&polled, 1, 1000) == 1 && net::connection_error(socket.get()) == 0;
}

void send_random_bytes(const net::Descriptor& socket, RandomStream& random) {
  std::string bytes(512, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random.below(256));
  (void)send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

void serve_parameters(const Address& address) {
  ParameterServer server(address, {.job_id = kJobId});
  say("up");
  server.wait();
}

void call_parameter_server(const Address& server, const std::string& task) {
  const auto client = with_own_shard(server, task);
  const TensorSpec spec = own_spec();
  const std::string name = shard_of(task);
  const Tensor value(spec.dtype, spec.shape);
  const ShardPush push{
      .shard = name, .gradient = Tensor::full(spec.dtype, spec.shape, -1), .learning_rate = 1};
  const ShardPull pull{.shard = name, .target = value};
  int64_t pushes = 0;
  call_again_and_again(kPause, [&] {
    client->update({&push, 1}, {&pull, 1});
    ++pushes;
  });
  for (const float count : value.values<float>())
    if (count != static_cast<float>(pushes))
      fail(Code::kDataLoss, name, " is ", count, " after ", pushes, " pushes");
}

void own_shard(const Address& server, const std::string& task) {
  const auto client = with_own_shard(server, task);
  idle();
}

void attend(const ClusterSpec& cluster, int rank, const TlsFiles& tls) {
  const auto member = join(cluster, rank, tls);
  idle();
  member->leave();
}

void call_leader(const ClusterSpec& cluster, int rank) {
  const auto member = join(cluster, rank);
  const std::string key = str("calls of ", rank);
  int64_t calls = 0;
  call_again_and_again(kPause, [&] {
    const int64_t counted = member->store().add(key, 1);
    if (counted != ++calls)
      fail(Code::kDataLoss, "the leader has counted ", counted, " calls of ", calls);
  });
  member->leave();
}

void train_encrypted(const ClusterSpec& cluster, int rank, const TlsFiles& tls) {
  const std::string config =
      str(R"({"cluster":)", cluster.json(), R"(,"task":{"type":"worker","index":)", rank, "}}");
  const std::pair<const char*, std::string> variables[] = {{"TF_CONFIG", config},
                                                           {"COHORT_JOB_ID", kJobId},
                                                           {"COHORT_TLS_CERT", tls.certificate},
                                                           {"COHORT_TLS_KEY", tls.key},
                                                           {"COHORT_TLS_CA", tls.authority}};
  for (const auto& [name, value] : variables) setenv(name, value.c_str(), 1);
  // The last signal may come when another worker's has ended the steps, or later still.
  static const CatchTermination until_the_end;
  constexpr char kModel[] = "mlp";
  MirroredTrainer trainer({.model = kModel, .batch = usual_batch(kModel), .several_workers = true});
  // All end after the same step.
  call_again_and_again(
      milliseconds(0), [&] { trainer.run(1); },
      [&] { return trainer.strategy().workers().stop_requested(); });
}

void attack_parameter_server(const Address& server, milliseconds pause) {
  attack(server, hostile_requests(), pause);
}

void attack_leader(const Address& leader, milliseconds pause) {
  attack(leader, hostile_members(), pause);
}

void flood_leader(const Address& leader, const TlsFiles& own, const TlsFiles& stranger,
                  int connections_per_s) {
  // As many as a leader may have to hold until it gives them up.
  constexpr size_t kHeld = 256;
  coordination::keep_grpc();
  if (!call_leader_once(leader, credentials_of(own)).is_there())
    fail(Code::kInternal,
         "the leader answers nobody, so that it says nothing that it does not "
         "answer strangers");
  const std::shared_ptr<grpc::ChannelCredentials> unwelcome[] = {grpc::InsecureChannelCredentials(),
                                                                 credentials_of(stranger)};
  const std::chrono::nanoseconds interval(std::chrono::seconds(1));
  RandomStream random(1);
  const auto address = net::InternetAddress::parse(leader.text(), "the leader");
  std::deque<net::Descriptor> held;
  auto next = Clock::now();
  for (uint64_t i = 0;; ++i) {
    bool connected = true;
    if (i % 4 < 2) {
      held.push_back(net::start_connecting(address));
      connected = is_connected(held.back());
      if (i % 4 == 1) send_random_bytes(held.back(), random);
      if (held.size() > kHeld) held.pop_front();
    } else if (call_leader_once(leader, unwelcome[i % 2]).is_there()) {
      say("answered");
    }
    if (connected) say("connected");
    std::this_thread::sleep_until(next += interval / connections_per_s);
  }
}

}  // namespace cohort::benchmarks
