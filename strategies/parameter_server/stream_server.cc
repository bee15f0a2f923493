#include "strategies/parameter_server/stream_server.h"

#include <chrono>
#include <optional>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/grpc_server.h"
#include "strategies/parameter_server/patience.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

coordination::GrpcServer::Options options_for(std::string name) {
  constexpr std::chrono::seconds kKeepalive(2), kHandshake(5);
  return {.name = std::move(name),
          .message_bytes = kMaxMessageBytes,
          .metadata_bytes = 8192,
          .calls_per_connection = 64,
          .handshake = kHandshake,
          .keepalive = kKeepalive,
          .keepalive_timeout = kUsualPatience,
          // For replies under way.
          .farewell = std::chrono::milliseconds(200)};
}

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
          const coordination::Security& security, Accept accept, Direct direct)
      : method_(std::move(method)), security_(security), accept_(std::move(accept)) {
    auto options = options_for(std::move(what));
    if (direct.accept)
      options.take = [direct = std::move(direct)](net::Descriptor& socket, char first) {
        if (first == direct.first_byte) direct.accept(std::exchange(socket, {}));
      };
    server_.emplace(address, security_, std::move(options), [this](grpc::ServerBuilder& builder) {
      builder.RegisterCallbackGenericService(this);
      COHORT_TSAN_RELEASE(this);  // for calls, of which ThreadSanitizer cannot see the beginning
    });
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    COHORT_TSAN_ACQUIRE(this);
    if (context->method() != method_) return new Stranger();
    return accept_(coordination::tasks_of(*context->auth_context(), security_));
  }

 private:
  const std::string method_;
  const coordination::Security security_;
  const Accept accept_;
  std::optional<coordination::GrpcServer> server_;  // last: its calls use the rest
};

StreamServer::StreamServer(std::string what, std::string method, const Address& address,
                           const coordination::Security& security, Accept accept, Direct direct)
    : network_(std::make_unique<Network>(std::move(what), std::move(method), address, security,
                                         std::move(accept), std::move(direct))) {}

StreamServer::~StreamServer() = default;

}  // namespace cohort::parameter_server
