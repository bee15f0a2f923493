#include "strategies/parameter_server/stream_server.h"

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "core/base/thread_sanitizer.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/grpc_server.h"
#include "strategies/cluster/coordination/refusal_log.h"
#include "strategies/parameter_server/patience.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

coordination::GrpcServer::Options options_for(const std::string& name) {
  constexpr std::chrono::seconds kKeepalive(2), kHandshake(5);
  return {.name = name,
          .message_bytes = kMaxMessageBytes,
          .usual_message_bytes = 2 * kMaxPayloadBytes,
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
  Network(const Address& address, const coordination::Security& security, Options options)
      : options_(std::move(options)), security_(security) {
    auto network = options_for(options_.name);
    if (options_.direct.accept)
      network.take = [this](net::Descriptor& socket, char first) {
        if (first == options_.direct.first_byte) options_.direct.accept(std::exchange(socket, {}));
      };
    network.refused = [this](const std::string& host, const Error& error) { refused(host, error); };
    server_.emplace(address, security_, std::move(network), [this](grpc::ServerBuilder& builder) {
      builder.RegisterCallbackGenericService(this);
      COHORT_TSAN_RELEASE(this);  // for calls, of which ThreadSanitizer cannot see the beginning
    });
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    COHORT_TSAN_ACQUIRE(this);
    if (context->method() != options_.method) return new Stranger();
    return options_.accept(coordination::tasks_of(*context->auth_context(), security_));
  }

 private:
  void refused(const std::string& host, const Error& error) {
    std::optional<std::string> line;
    {
      const std::lock_guard lock(mutex_);
      line = refusals_.line(host, error, std::chrono::steady_clock::now());
    }
    if (line) options_.notice(str(options_.name, ": ", *line));
  }

  const Options options_;
  const coordination::Security security_;
  std::mutex mutex_;
  coordination::RefusalLog refusals_;
  std::optional<coordination::GrpcServer> server_;  // last: its calls use the rest
};

StreamServer::StreamServer(const Address& address, const coordination::Security& security,
                           Options options)
    : network_(std::make_unique<Network>(address, security, std::move(options))) {}

StreamServer::~StreamServer() = default;

}  // namespace cohort::parameter_server
