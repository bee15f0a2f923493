#include "strategies/cluster/coordination/leader_server.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/leader_state.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/listener.h"
#include "strategies/cluster/net/arrivals.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/http2_guard.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// How long the last messages may take to reach members when the leader ends.
const gpr_timespec kFarewell = gpr_time_from_seconds(2, GPR_TIMESPAN);
constexpr int kMaxMetadataBytes = 4096;
constexpr int kMaxCallsPerConnection = 4;
// Twice what is taken, so that what is only somewhat too large is refused with the reason.
constexpr net::Http2Sizes::Limits kMostInPlainText = {
    .message_bytes = 2 * kMaxMessageBytes,
    .messages_bytes = kMaxCallsPerConnection * 2 * kMaxMessageBytes,
    .header_bytes = 2 * kMaxMetadataBytes};
// What a connection by TLS begins with.
constexpr char kHandshake = 0x16;

// How long a host may leave a heartbeat unanswered. The system counts from when it sends it again,
// 0.2 to 0.4 s after the first time; together they are over soon after `suspect`.
milliseconds longest_unanswered(const Timing& timing) {
  constexpr milliseconds kFirstRepetition(200);
  return std::max(timing.heartbeat, timing.suspect - 2 * timing.heartbeat - kFirstRepetition);
}

// "10.0.0.1" of gRPC's "ipv4:10.0.0.1:4444" or, with a guard in between, of
// "unix-abstract:10.0.0.1:4444", or nothing; IPv6 addresses have brackets, which may be escaped.
std::string host_of(const std::string& peer) {
  const size_t begin = peer.find(':'), end = peer.rfind(':');
  return begin < end ? peer.substr(begin + 1, end - begin - 1) : "";
}

std::unique_ptr<grpc::Server> start(
    grpc::Service* service, const std::shared_ptr<grpc::ServerCredentials>& credentials,
    Timing timing, std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>& acceptor) {
  keep_grpc();
  grpc::ServerBuilder builder;
  builder.RegisterService(service);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(-1);
  const int dead = static_cast<int>(timing.dead.count());
  const std::pair<const char*, int> arguments[] = {
      {GRPC_ARG_ALLOW_REUSEPORT, 0},
      {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
      {GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection},
      // A message grows a thousandfold before gRPC looks at its size. Ours are not compressed.
      {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
      // Who connects has to say something soon, or is a waste of descriptors.
      {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, dead},
      {GRPC_ARG_MAX_CONNECTION_IDLE_MS, dead},
      // Heartbeats find silent peers; this closes what is left of a connection to one.
      {GRPC_ARG_KEEPALIVE_TIME_MS, dead},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2 * dead},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, dead / 4},
      {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
  };
  for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
  acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  return builder.BuildAndStart();
}

}  // namespace

// One lock guards the state; it is held while messages are queued, never while they travel.
class LeaderServer::Service : public proto::Coordination::CallbackService {
 public:
  Service(const Roster& roster, const std::string& job_id, Timing timing, const Security& security,
          std::function<void(const std::string&)> notice)
      : security_(security),
        notice_(std::move(notice)),
        clock_(std::max<milliseconds>(seconds(1), 2 * timing.heartbeat)),
        state_(roster, job_id, timing, clock_.now()) {
    const Address& address = *roster.leader();
    const std::vector<net::InternetAddress> endpoints = resolve(address);
    security.check(str("the leader would serve tasks at ", address.text()),
                   all_loopback(endpoints));
    if (!security.encrypted()) guard_.emplace(kMostInPlainText);
    server_ = start(this, server_credentials(security), timing, acceptor_);
    if (!server_) {
      invalid("the leader cannot serve at ", address.text(),
              ": gRPC refuses the certificate, the key or the authority (COHORT_TLS_CERT, "
              "COHORT_TLS_KEY, COHORT_TLS_CA)");
    }
    if (security.encrypted())
      arrivals_.emplace([this](net::Descriptor socket, char first) {
        if (first == kHandshake)
          give_to_grpc(std::move(socket));
        else
          refuse_plain_text(socket);
      });
    // A host that answers no longer is gone sooner than a process that says nothing: every
    // heartbeat goes out, and a frozen process has a system that answers for it.
    listener_ = std::make_unique<Listener>(address, endpoints, [this, timing](int descriptor) {
      net::Descriptor socket(descriptor);
      net::repeat_often(socket.get());
      net::break_when_unanswered(socket.get(), longest_unanswered(timing));
      if (arrivals_)
        arrivals_->add(std::move(socket));
      else
        give_to_grpc(std::move(socket));
    });
    ticker_ = std::thread([this] { tick(); });
  }

  ~Service() override {
    listener_.reset();
    arrivals_.reset();
    if (ticker_.joinable()) {
      {
        std::lock_guard lock(mutex_);
        state_.stop();
        stopping_ = true;
      }
      wake_.notify_all();
      ticker_.join();
    }
    // By the steady clock: somebody may set the other.
    if (server_) server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), kFarewell));
  }

  using proto::Coordination::CallbackService::Attend;
  grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader>* Attend(
      grpc::CallbackServerContext* context) override {
    const auto session = std::make_shared<Session>(
        *this, tasks_of(*context->auth_context(), security_), host_of(context->peer()));
    {
      std::lock_guard lock(mutex_);
      if (!stopping_) state_.opened(session, clock_.now());
    }
    session->begin(session);
    return session.get();
  }

 private:
  // One call. It keeps itself alive until gRPC is done with it.
  class Session : public grpc::ServerBidiReactor<proto::FromMember, proto::FromLeader>,
                  public Connection {
   public:
    Session(Service& service, CertifiedTasks tasks, std::string host)
        : service_(service), tasks_(std::move(tasks)), host_(std::move(host)) {}

    void begin(std::shared_ptr<Session> self) {
      self_ = std::move(self);
      StartRead(&incoming_);
    }

    void send(const proto::FromLeader& message) override {
      std::lock_guard lock(mutex_);
      if (ending_ || finished_) return;
      outgoing_.push_back(message);
      if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
    }

    void finish() override {
      std::lock_guard lock(mutex_);
      ending_ = true;
      if (outgoing_.empty()) finish_now();
    }

    CertifiedTasks tasks() const override { return tasks_; }
    std::string host() const override { return host_; }

    void OnReadDone(bool ok) override {
      if (!ok) return end();
      service_.received(self_, incoming_);
      incoming_.Clear();
      StartRead(&incoming_);
    }

    void OnWriteDone(bool ok) override {
      std::lock_guard lock(mutex_);
      outgoing_.pop_front();
      if (finished_) return;
      if (!ok) return finish_now();
      if (!outgoing_.empty()) return StartWrite(&outgoing_.front());
      if (ending_) finish_now();
    }

    void OnCancel() override { end(); }

    void OnDone() override {
      const std::shared_ptr<Session> last = std::move(self_);
      service_.closed(last);
    }

   private:
    // The member has gone.
    void end() {
      service_.closed(self_);
      std::lock_guard lock(mutex_);
      ending_ = true;
      finish_now();
    }

    void finish_now() {
      if (!std::exchange(finished_, true)) Finish(grpc::Status::OK);
    }

    Service& service_;
    const CertifiedTasks tasks_;
    const std::string host_;
    std::shared_ptr<Session> self_;
    proto::FromMember incoming_;
    std::mutex mutex_;                        // taken inside the service's
    std::deque<proto::FromLeader> outgoing_;  // the first is being written
    bool ending_ = false, finished_ = false;
  };

  void give_to_grpc(net::Descriptor socket) {
    if (guard_) socket = guard_->guard(std::move(socket));
    if (!socket) return;
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.release();
    acceptor_->HandleNewConnection(&connection);
  }

  // Of somebody who is to speak TLS: he is known without the work of a handshake, and by his host,
  // which gRPC does not tell.
  void refuse_plain_text(const net::Descriptor& socket) {
    const auto peer = net::InternetAddress::of_peer(socket);
    {
      std::lock_guard lock(mutex_);
      state_.refused(peer ? peer->host() : std::string(),
                     Error(Code::kPermissionDenied,
                           "it does not speak TLS, as the tasks of this job do "
                           "(COHORT_TLS_CERT, COHORT_TLS_KEY, COHORT_TLS_CA)"),
                     clock_.now());
    }
    wake_.notify_all();
  }

  void received(const std::shared_ptr<Session>& session, const proto::FromMember& message) {
    std::vector<std::string> notices;
    {
      std::lock_guard lock(mutex_);
      state_.received(session, message, clock_.now());
      notices = state_.take_notices();
    }
    for (const std::string& line : notices) notice_(line);
    // A heartbeat makes nothing due earlier.
    if (!message.has_heartbeat()) wake_.notify_all();
  }

  void closed(const std::shared_ptr<Session>& session) {
    std::lock_guard lock(mutex_);
    state_.closed(session);
  }

  void tick() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const auto now = clock_.now();
      state_.tick(now);
      if (const auto notices = state_.take_notices(); !notices.empty()) {
        lock.unlock();
        for (const std::string& line : notices) notice_(line);
        lock.lock();
        continue;
      }
      wake_.wait_for(lock, state_.next_tick(now) - now);
    }
  }

  const Security security_;
  const std::function<void(const std::string&)> notice_;
  std::mutex mutex_;
  std::condition_variable wake_;
  RunningClock clock_;
  LeaderState state_;
  bool stopping_ = false;
  std::optional<net::Http2Guard> guard_;  // where calls are not encrypted; outlives the server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<net::Arrivals> arrivals_;  // where calls are encrypted
  std::unique_ptr<Listener> listener_;
  std::thread ticker_;
};

LeaderServer::LeaderServer(const Roster& roster, const std::string& job_id, Timing timing,
                           const Security& security, std::function<void(const std::string&)> notice)
    : service_(std::make_unique<Service>(roster, job_id, timing, security, std::move(notice))) {}

LeaderServer::~LeaderServer() = default;

}  // namespace cohort::coordination
