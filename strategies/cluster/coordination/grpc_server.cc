#include "strategies/cluster/coordination/grpc_server.h"

#include <optional>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/listener.h"
#include "strategies/cluster/net/arrivals.h"
#include "strategies/cluster/net/descriptor_reserve.h"
#include "strategies/cluster/net/http2_guard.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/tls_variables.h"

namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;

// What TLS begins with.
constexpr char kHandshake = 0x16;

int count_of(milliseconds time) { return static_cast<int>(time.count()); }

// Twice what gRPC takes, so that it refuses, with the reason, what is only somewhat too large.
net::Http2Sizes::Limits most_in_plain_text(const GrpcServer::Options& options) {
  const auto message = static_cast<size_t>(options.message_bytes);
  const auto calls = static_cast<size_t>(options.calls_per_connection);
  net::Http2Sizes::Limits limits{.message_bytes = 2 * message,
                                 .messages_bytes = calls * message,
                                 .header_bytes = 2 * static_cast<size_t>(options.metadata_bytes),
                                 .usual_bytes = static_cast<size_t>(options.usual_message_bytes)};
  if (options.first_message_bytes)
    limits.first_bytes = static_cast<size_t>(*options.first_message_bytes);
  return limits;
}

}  // namespace

class GrpcServer::Network {
 public:
  Network(const Address& address, const Security& security, Options options,
          const std::function<void(grpc::ServerBuilder&)>& add_services)
      : options_(std::move(options)), is_encrypted_(security.encrypted()) {
    keep_grpc();
    const auto endpoints = resolve(address);
    security.check(str("of the ", options_.name, " at ", address.text()), all_loopback(endpoints));
    if (!is_encrypted_)
      guard_.emplace(most_in_plain_text(options_), [this](const auto& peer, char first) {
        if (first == kHandshake) refuse_tls(peer);
      });
    start(security, add_services);
    if (!server_)
      invalid("the ", options_.name, " cannot serve at ", address.text(),
              ": gRPC refuses the certificate, the key or the authority ", net::kTlsVariables);
    if (options_.take || is_encrypted_)
      arrivals_.emplace(
          [this](net::Descriptor socket, char first) { admit(std::move(socket), first); });
    listener_.emplace(options_.name, address, endpoints,
                      [this](int descriptor) { accept(net::Descriptor(descriptor)); });
  }

  ~Network() {
    listener_.reset();
    arrivals_.reset();
    // By the steady clock: somebody may set the other.
    if (server_)
      server_->Shutdown(
          gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                       gpr_time_from_millis(options_.farewell.count(), GPR_TIMESPAN)));
  }

  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

 private:
  void start(const Security& security,
             const std::function<void(grpc::ServerBuilder&)>& add_services) {
    grpc::ServerBuilder builder;
    add_services(builder);
    builder.SetMaxReceiveMessageSize(options_.message_bytes);
    builder.SetMaxSendMessageSize(-1);
    const std::pair<const char*, int> arguments[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0},
        {GRPC_ARG_MAX_METADATA_SIZE, options_.metadata_bytes},
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, options_.calls_per_connection},
        // A message grows a thousandfold before gRPC looks at its size. Ours are not compressed.
        {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, count_of(options_.handshake)},
        {GRPC_ARG_KEEPALIVE_TIME_MS, count_of(options_.keepalive)},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, count_of(options_.keepalive_timeout)},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, count_of(options_.keepalive) / 4},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
    };
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
    if (options_.idle)
      builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, count_of(*options_.idle));
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        server_credentials(security));
    server_ = builder.BuildAndStart();
  }

  void accept(net::Descriptor socket) {
    if (socket.get() >= net::first_reserved_descriptor())
      return refuse_for_want_of_descriptors(net::InternetAddress::of_peer(socket));
    if (options_.prepare) options_.prepare(socket);
    if (arrivals_)
      arrivals_->add(std::move(socket));
    else
      give_to_grpc(std::move(socket));
  }

  void admit(net::Descriptor socket, char first) {
    if (options_.take) options_.take(socket, first);
    if (!socket) return;
    if (is_encrypted_ && first != kHandshake)
      refuse_plain_text(socket);
    else
      give_to_grpc(std::move(socket));
  }

  // He is known without the work of a handshake, and by his host, which gRPC does not tell.
  void refuse_plain_text(const net::Descriptor& socket) const {
    refuse(net::InternetAddress::of_peer(socket),
           Error(Code::kPermissionDenied,
                 str("it does not speak TLS, as the tasks of this job do ", net::kTlsVariables)));
  }

  void refuse_tls(const std::optional<net::InternetAddress>& peer) const {
    refuse(peer,
           Error(Code::kFailedPrecondition,
                 str("it speaks TLS, but this task has no certificates ", net::kTlsVariables)));
  }

  void refuse_for_want_of_descriptors(const std::optional<net::InternetAddress>& peer) const {
    refuse(peer, Error(Code::kResourceExhausted,
                       str("this process has no file descriptors left for it: besides a reserve, ",
                           net::first_reserved_descriptor(),
                           " may be open (ulimit -n), and each task that is connected takes ",
                           guard_ ? "three" : "one")));
  }

  void refuse(const std::optional<net::InternetAddress>& peer, const Error& error) const {
    options_.refused(peer ? peer->host() : "", error);
  }

  void give_to_grpc(net::Descriptor socket) {
    if (guard_) {
      const auto peer = net::InternetAddress::of_peer(socket);
      socket = guard_->guard(std::move(socket));
      if (!socket) return refuse_for_want_of_descriptors(peer);
    }
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.release();
    acceptor_->HandleNewConnection(&connection);
  }

  const Options options_;
  const bool is_encrypted_;
  std::optional<net::Http2Guard> guard_;  // where calls are not encrypted; outlives the server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<net::Arrivals> arrivals_;
  std::optional<Listener> listener_;
};

GrpcServer::GrpcServer(const Address& address, const Security& security, Options options,
                       const std::function<void(grpc::ServerBuilder&)>& add_services)
    : network_(std::make_unique<Network>(address, security, std::move(options), add_services)) {}

GrpcServer::~GrpcServer() = default;

}  // namespace cohort::coordination
