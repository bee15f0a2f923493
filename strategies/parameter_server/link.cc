#include "strategies/parameter_server/link.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/grpc_credentials.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

constexpr int kConnectMilliseconds = 3000;
constexpr int kKeepaliveMilliseconds = 2000;
constexpr int kMaxMetadataBytes = 8192;
constexpr std::chrono::milliseconds kLook(100);

enum Tag : intptr_t { kStart = 1, kWrite, kRead, kFinish };

int count_of(std::chrono::milliseconds time) {
  return static_cast<int>(std::min<int64_t>(time.count(), std::numeric_limits<int>::max()));
}

void* as_tag(Tag tag) { return reinterpret_cast<void*>(tag); }

gpr_timespec as_timespec(Link::Time time) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      time - std::chrono::steady_clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(left.count(), GPR_TIMESPAN));
}

class Call final : public Link::Carrier {
 public:
  using Unconnected = Link::Unconnected;

  Call(const std::shared_ptr<grpc::Channel>& channel, Unconnected unconnected) : stub_(channel) {
    context_.set_wait_for_ready(unconnected == Unconnected::kWait);
    stream_ = stub_.PrepareCall(&context_, kMethod, &queue_);
    stream_->StartCall(as_tag(kStart));
  }

  ~Call() override {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    // Looks again and again: gRPC may forget to wake who waits for a cancelled call (its issue
    // 21227).
    while (queue_.AsyncNext(&tag, &ok, as_timespec(std::chrono::steady_clock::now() + kLook)) !=
           grpc::CompletionQueue::SHUTDOWN) {
    }
  }

  bool connect(Time deadline) override {
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_.AsyncNext(&tag, &ok, as_timespec(deadline));
    if (cancelled_) fail(Code::kCancelled, "the call was cancelled");
    if (status != grpc::CompletionQueue::GOT_EVENT) return false;
    if (!ok) finish(deadline);
    return true;
  }

  void send(Message message, Time deadline) override {
    MessageCutter cutter(std::move(message));
    while (cutter.has_next()) {
      const grpc::ByteBuffer part = cutter.next();
      stream_->Write(part, as_tag(kWrite));
      if (!wait(kWrite, deadline)) finish(deadline);
    }
  }

  void receive(const Link::Receiver& receiver, Time deadline) override {
    stream_->Read(&incoming_, as_tag(kRead));
    if (!wait(kRead, deadline)) finish(deadline);
    const MessageReader message(incoming_);
    receiver.begin(message.header(), message.payload_bytes());
    message.read([&](const Piece& part) { receiver.take(part.data, part.bytes); });
  }

  void cancel() override {
    cancelled_ = true;
    context_.TryCancel();
  }

 private:
  // Whether the operation went well.
  bool wait(Tag wanted, Time deadline) {
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_.AsyncNext(&tag, &ok, as_timespec(deadline));
    if (cancelled_) fail(Code::kCancelled, "the call was cancelled");
    if (status != grpc::CompletionQueue::GOT_EVENT)
      fail(Code::kDeadlineExceeded, "the time for the call is over");
    COHORT_CHECK(tag == as_tag(wanted));
    return ok;
  }

  // Throws why the server has ended the call.
  [[noreturn]] void finish(Time deadline) {
    stream_->Finish(&status_, as_tag(kFinish));
    wait(kFinish, deadline);
    // gRPC says it is cancelled where a call is open when the server ends; the server never does.
    if (status_.ok() || status_.error_code() == grpc::StatusCode::CANCELLED)
      fail(Code::kUnavailable, "the server has ended the call");
    throw error_of(status_);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  grpc::ByteBuffer incoming_;  // written to by gRPC until the queue has ended
  grpc::Status status_;
  std::atomic<bool> cancelled_ = false;
};

}  // namespace

std::shared_ptr<grpc::Channel> open_channel(const Address& server,
                                            const coordination::Security& security,
                                            std::chrono::milliseconds patience) {
  const auto endpoints = coordination::resolve(server);
  security.check(str("of requests to ", server.text()), coordination::all_loopback(endpoints));
  grpc::ChannelArguments arguments;
  const std::pair<const char*, int> values[] = {
      {GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1},  // a connection of its own
      {GRPC_ARG_ENABLE_HTTP_PROXY, 0},          // whatever http_proxy says
      {GRPC_ARG_ENABLE_RETRIES, 0},
      {GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, count_of(kFirstPause)},
      {GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, count_of(kLongestPause)},
      {GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectMilliseconds},
      {GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMilliseconds},
      {GRPC_ARG_KEEPALIVE_TIMEOUT_MS, count_of(patience)},
      {GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1},
      {GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0},
      {GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes},
  };
  for (const auto& [name, value] : values) arguments.SetInt(name, value);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(-1);
  if (security.encrypted()) arguments.SetSslTargetNameOverride(security.name_at(server.host()));
  return grpc::CreateCustomChannel(coordination::grpc_target(endpoints.front()),
                                   coordination::channel_credentials(security), arguments);
}

Link::Link(const std::shared_ptr<grpc::Channel>& channel, Unconnected unconnected)
    : Link(std::make_unique<Call>(channel, unconnected)) {}

Link::Link(std::unique_ptr<Carrier> carrier) : carrier_(std::move(carrier)) {}

Link::~Link() = default;

bool Link::connect(Time deadline) { return carrier_->connect(deadline); }

void Link::send(Message message, Time deadline) { carrier_->send(std::move(message), deadline); }

void Link::receive(const Receiver& receiver, Time deadline) {
  carrier_->receive(receiver, deadline);
}

bool Link::beat() { return carrier_->beat(); }

void Link::cancel() { carrier_->cancel(); }

}  // namespace cohort::parameter_server
