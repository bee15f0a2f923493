#include "strategies/parameter_server/link.h"

#include <utility>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

enum Tag : intptr_t { kStart = 1, kWrite, kRead, kFinish };

void* as_tag(Tag tag) { return reinterpret_cast<void*>(tag); }

gpr_timespec as_timespec(Link::Time time) {
  const auto left = std::chrono::duration_cast<std::chrono::microseconds>(
      time - std::chrono::steady_clock::now());
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(left.count(), GPR_TIMESPAN));
}

Error error_of(const grpc::Status& status) {
  // Unknown is what gRPC says of a connection that broke in an odd way, as by a TLS record that
  // does not fit its check; the server never says so.
  const int code = static_cast<int>(status.error_code());
  const bool known = code >= static_cast<int>(Code::kCancelled) &&
                     code <= static_cast<int>(Code::kDataLoss) &&
                     code != static_cast<int>(Code::kUnknown);
  const std::string& text = status.error_message();
  const size_t line = text.find('\n');
  return Error(known ? static_cast<Code>(code) : Code::kUnavailable, text.substr(0, line),
               line == std::string::npos ? "" : text.substr(line + 1));
}

}  // namespace

class Link::Call {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, Unconnected unconnected) : stub_(channel) {
    context_.set_wait_for_ready(unconnected == Unconnected::kWait);
    stream_ = stub_.PrepareCall(&context_, kMethod, &queue_);
    stream_->StartCall(as_tag(kStart));
  }

  ~Call() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool connect(Time deadline) {
    void* tag = nullptr;
    bool ok = false;
    const auto status = queue_.AsyncNext(&tag, &ok, as_timespec(deadline));
    if (cancelled_) fail(Code::kCancelled, "the call was cancelled");
    if (status != grpc::CompletionQueue::GOT_EVENT) return false;
    if (!ok) finish(deadline);
    return true;
  }

  void send(Message message, Time deadline) {
    MessageCutter cutter(std::move(message));
    while (cutter.has_next()) {
      const grpc::ByteBuffer part = cutter.next();
      stream_->Write(part, as_tag(kWrite));
      if (!wait(kWrite, deadline)) finish(deadline);
    }
  }

  void receive(const Receiver& receiver, Time deadline) {
    stream_->Read(&incoming_, as_tag(kRead));
    if (!wait(kRead, deadline)) finish(deadline);
    const MessageReader message(incoming_);
    receiver.begin(message.header(), message.payload_bytes());
    message.read(receiver.take);
  }

  void cancel() {
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
    if (status_.ok()) fail(Code::kUnavailable, "the server has ended the call");
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

Link::Link(const std::shared_ptr<grpc::Channel>& channel, Unconnected unconnected)
    : call_(std::make_unique<Call>(channel, unconnected)) {}

Link::~Link() = default;

bool Link::connect(Time deadline) { return call_->connect(deadline); }

void Link::send(Message message, Time deadline) { call_->send(std::move(message), deadline); }

void Link::receive(const Receiver& receiver, Time deadline) { call_->receive(receiver, deadline); }

void Link::cancel() { call_->cancel(); }

}  // namespace cohort::parameter_server
