#include "strategies/coordinator/client_stream.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
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

  void send(Message message) try {
    const std::lock_guard lock(mutex_);
    outbox_.add(std::move(message));
    write();
  } catch (const std::bad_alloc&) {
    give_up();
  }

  bool is_drained() const {
    const std::lock_guard lock(mutex_);
    return outbox_.idle();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return release();
    try {
      listener_.received(MessageReader(incoming_));
    } catch (...) {
      return give_up();
    }
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override try {
    {
      const std::lock_guard lock(mutex_);
      outbox_.written();
      if (!ok) return;
      write();
      if (!outbox_.idle()) return;
    }
    listener_.drained();
  } catch (const std::bad_alloc&) {
    give_up();
  }

  void OnDone(const grpc::Status& status) override {
    try {
      if (const auto error = given_up_for()) std::rethrow_exception(error);
      if (status.ok()) fail(Code::kUnavailable, "it has ended the call");
      throw parameter_server::error_of(status);
    } catch (const Error& error) {
      listener_.closed(error);
    } catch (...) {  // std::bad_alloc
      listener_.closed(no_memory_);
    }
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

  // For the exception that is being handled. Takes no memory: gRPC passes over what its calls
  // throw, and this one would stand still.
  void give_up() {
    {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    context_.TryCancel();
    release();
  }

  std::exception_ptr given_up_for() const {
    const std::lock_guard lock(mutex_);
    return error_;
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
  const Error no_memory_{Code::kResourceExhausted, "there is no memory to talk to it"};
  mutable std::mutex mutex_;
  std::condition_variable done_changed_;
  std::exception_ptr error_;  // why the call was given up
  Outbox outbox_;
  bool released_ = false, done_ = false;
};

ClientStream::ClientStream(const std::shared_ptr<grpc::Channel>& channel, Listener& listener)
    : call_(std::make_unique<Call>(channel, listener)) {}

ClientStream::~ClientStream() = default;

void ClientStream::send(Message message) { call_->send(std::move(message)); }

bool ClientStream::is_drained() const { return call_->is_drained(); }

}  // namespace cohort::coordinator
