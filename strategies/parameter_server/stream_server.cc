#include "strategies/parameter_server/stream_server.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/listener.h"
#include "strategies/cluster/net/arrivals.h"
#include "strategies/cluster/net/http2_guard.h"
#include "strategies/parameter_server/patience.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

// How long replies under way may take when the server ends.
constexpr std::chrono::milliseconds kFarewell(200);
constexpr int kMaxMetadataBytes = 8192;
constexpr int kMaxCallsPerConnection = 64;
// Twice what is taken, so that what is only somewhat too large is refused with the reason.
constexpr net::Http2Sizes::Limits kMostInPlainText = {
    .message_bytes = 2 * kMaxMessageBytes,
    .messages_bytes = size_t{kMaxCallsPerConnection} * kMaxMessageBytes,
    .header_bytes = 2 * kMaxMetadataBytes};
constexpr int kKeepaliveMilliseconds = 2000;
constexpr int kKeepaliveTimeoutMilliseconds = static_cast<int>(kUsualPatience.count());
constexpr int kHandshakeMilliseconds = 5000;

// Refuses a call of another name.
class Stranger final : public grpc::ServerGenericBidiReactor {
 public:
  Stranger() { Finish({grpc::StatusCode::UNIMPLEMENTED, "this server has one method"}); }
  void OnDone() override { delete this; }
};

}  // namespace

class StreamServer::Network final : public grpc::CallbackGenericService {
 public:
  Network(std::string what, std::string method, const Address& address,
          const coordination::Security& security, Accept accept, const Direct& direct)
      : method_(std::move(method)),
        security_(security),
        accept_(std::move(accept)),
        direct_(direct) {
    coordination::keep_grpc();
    const auto endpoints = coordination::resolve(address);
    security.check(str("the ", what, " would serve at ", address.text()),
                   coordination::all_loopback(endpoints));
    if (!security.encrypted()) guard_.emplace(kMostInPlainText);
    start(what, address);
    if (direct_.accept)
      arrivals_.emplace([this](net::Descriptor socket, char first) {
        if (first == direct_.first_byte)
          direct_.accept(std::move(socket));
        else
          give_to_grpc(std::move(socket));
      });
    listener_ =
        std::make_unique<coordination::Listener>(address, endpoints, [this](int descriptor) {
          net::Descriptor socket(descriptor);
          if (arrivals_)
            arrivals_->add(std::move(socket));
          else
            give_to_grpc(std::move(socket));
        });
  }

  ~Network() override {
    listener_.reset();
    arrivals_.reset();
    if (server_)
      server_->Shutdown(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                     gpr_time_from_millis(kFarewell.count(), GPR_TIMESPAN)));
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    COHORT_TSAN_ACQUIRE(this);
    if (context->method() != method_) return new Stranger();
    return accept_(coordination::tasks_of(*context->auth_context(), security_));
  }

 private:
  void start(const std::string& what, const Address& address) {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(this);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.SetMaxSendMessageSize(-1);
    const std::pair<const char*, int> arguments[] = {
        {GRPC_ARG_ALLOW_REUSEPORT, 0},
        {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
        {GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxCallsPerConnection},
        // A message grows a thousandfold before gRPC looks at its size. Ours are not compressed.
        {GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0},
        {GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds},
        {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds},
        {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMilliseconds},
        {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
        {GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMilliseconds / 4},
        {GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0},
    };
    for (const auto& [name, value] : arguments) builder.AddChannelArgument(name, value);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        coordination::server_credentials(security_));
    COHORT_TSAN_RELEASE(this);  // for the calls, of which ThreadSanitizer cannot see the beginning
    server_ = builder.BuildAndStart();
    if (!server_)
      invalid("the ", what, " cannot serve at ", address.text(),
              ": gRPC refuses the certificate, the key or the authority (COHORT_TLS_CERT, "
              "COHORT_TLS_KEY, COHORT_TLS_CA)");
  }

  void give_to_grpc(net::Descriptor socket) {
    if (guard_) socket = guard_->guard(std::move(socket));
    if (!socket) return;
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket.release();
    acceptor_->HandleNewConnection(&connection);
  }

  const std::string method_;
  const coordination::Security security_;
  const Accept accept_;
  const Direct direct_;
  std::optional<net::Http2Guard> guard_;  // where calls are not encrypted; outlives the server
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::optional<net::Arrivals> arrivals_;
  std::unique_ptr<coordination::Listener> listener_;
};

StreamServer::StreamServer(std::string what, std::string method, const Address& address,
                           const coordination::Security& security, Accept accept,
                           const Direct& direct)
    : network_(std::make_unique<Network>(std::move(what), std::move(method), address, security,
                                         std::move(accept), direct)) {}

StreamServer::~StreamServer() = default;

}  // namespace cohort::parameter_server
