#include "strategies/coordinator/client_stream.h"

#include <condition_variable>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/outbox.h"

namespace cohort::coordinator {

using parameter_server::Message;
using parameter_server::MessageReader;

class ClientStream::Call : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  Call(const std::shared_ptr<grpc::Channel>& channel, Listener& listener)
      : stub_(channel), listener_(listener) {
    stub_.PrepareBidiStreamingCall(&context_, kMethod, {}, this);
    AddHold();  // for the calls of send(), until the stream ends
    StartRead(&incoming_);
    StartCall();
  }

  ~Call() override {
    context_.TryCancel();
    release();
    std::unique_lock lock(mutex_);
    done_changed_.wait(lock, [&] { return done_; });
  }

  void send(Message message) {
    const std::lock_guard lock(mutex_);
    outbox_.add(std::move(message));
    write();
  }

  bool is_drained() const {
    const std::lock_guard lock(mutex_);
    return outbox_.idle();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return release();
    try {
      listener_.received(MessageReader(incoming_));
    } catch (const Error& error) {
      return give_up(error);
    } catch (const std::bad_alloc&) {
      return give_up(Error(Code::kResourceExhausted, "there is no memory for its answer"));
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    {
      const std::lock_guard lock(mutex_);
      outbox_.written();
      if (!ok) return;
      write();
      if (!outbox_.idle()) return;
    }
    listener_.drained();
  }

  void OnDone(const grpc::Status& status) override {
    const Error ended(Code::kUnavailable, "it has ended the call");
    listener_.closed(error_ ? *error_ : status.ok() ? ended : parameter_server::error_of(status));
    const std::lock_guard lock(mutex_);
    done_ = true;
    done_changed_.notify_all();
  }

 private:
  // REQUIRES: mutex_ held.
  void write() {
    if (released_) return;
    if (const grpc::ByteBuffer* part = outbox_.next()) StartWrite(part);
  }

  void give_up(const Error& error) {
    error_ = error;
    context_.TryCancel();
    release();
  }

  // No more writes: gRPC may finish the call.
  void release() {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(released_, true)) return;
    }
    RemoveHold();
  }

  grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer> stub_;
  grpc::ClientContext context_;
  Listener& listener_;
  grpc::ByteBuffer incoming_;
  std::optional<Error> error_;  // why the call was given up
  mutable std::mutex mutex_;
  std::condition_variable done_changed_;
  Outbox outbox_;
  bool released_ = false, done_ = false;
};

ClientStream::ClientStream(const std::shared_ptr<grpc::Channel>& channel, Listener& listener)
    : call_(std::make_unique<Call>(channel, listener)) {}

ClientStream::~ClientStream() = default;

void ClientStream::send(Message message) { call_->send(std::move(message)); }

bool ClientStream::is_drained() const { return call_->is_drained(); }

}  // namespace cohort::coordinator
