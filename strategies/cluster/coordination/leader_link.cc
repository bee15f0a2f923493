#include "strategies/cluster/coordination/leader_link.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <string>
#include <utility>

#include <grpcpp/grpcpp.h>

#include "proto/coordination.grpc.pb.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/cluster/coordination/limits.h"

namespace cohort::coordination {
namespace {

// For TCP and TLS; then the next attempt follows.
constexpr int kConnectMilliseconds = 3000;
constexpr int kMaxMetadataBytes = 4096;

std::shared_ptr<grpc::Channel> open(const Address& leader, const net::InternetAddress& endpoint,
                                    const Timing& timing, const Security& security) {
  keep_grpc();
  const int dead = static_cast<int>(timing.dead.count());
  grpc::ChannelArguments arguments;
  const std::pair<const char*, int> values[] = {
      {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},  // a connection of its own
      {GRPC_ARG_ENABLE_HTTP_PROXY, 0},          // whatever http_proxy says
      {GRPC_ARG_ENABLE_RETRIES, 0},
      {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds},
      // Who waits for its first answer has nothing else to find a silent leader by.
      {GRPC_ARG_KEEPALIVE_TIME_MS, dead},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2 * dead},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
  };
  for (const auto& [name, value] : values) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  if (security.encrypted()) arguments.SetSslTargetNameOverride(security.name_at(leader.host()));
  return grpc::CreateCustomChannel(grpc_target(endpoint), channel_credentials(security), arguments);
}

// Without what gRPC says about itself: "failed to connect to all addresses; last error: UNKNOWN:
// ...".
std::string reason(const grpc::Status& status) {
  if (status.ok()) return "it has closed the connection";
  std::string text = status.error_message();
  for (const std::string preamble : {"last error: ", "UNKNOWN: ", "UNAVAILABLE: "}) {
    const size_t found = text.find(preamble);
    if (found != std::string::npos) text = text.substr(found + preamble.size());
  }
  return text;
}

}  // namespace

class LeaderLink::Call : public grpc::ClientBidiReactor<proto::FromMember, proto::FromLeader> {
 public:
  Call(std::shared_ptr<grpc::Channel> channel, Listener& listener)
      : channel_(std::move(channel)),
        stub_(proto::Coordination::NewStub(channel_)),
        listener_(listener) {
    stub_->async()->Attend(&context_, this);
    AddHold();  // for the calls of send() and drain(), until the stream ends
    StartRead(&incoming_);
    StartCall();
  }

  ~Call() override {
    context_.TryCancel();
    release();
    std::unique_lock lock(mutex_);
    done_changed_.wait(lock, [&] { return done_; });
  }

  void send(const proto::FromMember& message) {
    std::lock_guard lock(mutex_);
    if (released_ || half_closed_) return;
    outgoing_.push_back(message);
    if (outgoing_.size() == 1) StartWrite(&outgoing_.front());
  }

  void drain(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!released_ && !std::exchange(half_closed_, true) && outgoing_.empty()) StartWritesDone();
    done_changed_.wait_for(lock, timeout, [&] { return done_; });
  }

  void OnReadDone(bool ok) override {
    if (!ok) return release();
    try {
      listener_.received(incoming_);
    } catch (const std::bad_alloc&) {  // gRPC would pass it over, and nothing be read any more
      context_.TryCancel();
      return release();
    }
    incoming_.Clear();
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(mutex_);
    outgoing_.pop_front();
    if (released_ || !ok) return;
    if (!outgoing_.empty()) {
      StartWrite(&outgoing_.front());
    } else if (half_closed_) {
      StartWritesDone();
    }
  }

  void OnDone(const grpc::Status& status) override {
    std::string why;
    try {
      why = reason(status);
    } catch (const std::bad_alloc&) {  // it has ended, for whatever reason
    }
    listener_.closed(why);
    std::lock_guard lock(mutex_);
    done_ = true;
    done_changed_.notify_all();
  }

 private:
  // No more writes: gRPC may finish the call.
  void release() {
    {
      std::lock_guard lock(mutex_);
      if (std::exchange(released_, true)) return;
    }
    RemoveHold();
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::Coordination::Stub> stub_;
  grpc::ClientContext context_;
  Listener& listener_;
  proto::FromLeader incoming_;
  std::mutex mutex_;
  std::condition_variable done_changed_;
  std::deque<proto::FromMember> outgoing_;  // the first is being written
  bool half_closed_ = false, released_ = false, done_ = false;
};

LeaderLink::LeaderLink(const Address& leader, const net::InternetAddress& endpoint,
                       const Timing& timing, const Security& security, Listener& listener)
    : call_(std::make_unique<Call>(open(leader, endpoint, timing, security), listener)) {}

LeaderLink::~LeaderLink() = default;

void LeaderLink::send(const proto::FromMember& message) { call_->send(message); }

void LeaderLink::drain(std::chrono::milliseconds timeout) { call_->drain(timeout); }

}  // namespace cohort::coordination
