#pragma once

#include <memory>

#include "core/base/error.h"
#include "strategies/parameter_server/exchange.h"

namespace grpc {
class Channel;
}  // namespace grpc
namespace cohort::parameter_server {
class MessageReader;
}  // namespace cohort::parameter_server

namespace cohort::coordinator {

// A call to a worker: messages both ways, each at its own pace.
class ClientStream {
 public:
  // Called on threads of gRPC, drained() also beside received(); must not block for long, nor
  // destroy the stream.
  class Listener {
   public:
    virtual ~Listener() = default;
    // A part of a message. What it throws ends the call.
    virtual void received(const parameter_server::MessageReader& part) = 0;
    // All that was to be sent has been handed to the network.
    virtual void drained() = 0;
    // The last call: why the call has ended; kResourceExhausted where there was no memory for it.
    // Throws nothing.
    virtual void closed(const Error& reason) = 0;
  };

  // Starts to connect. `listener` must stay until the stream is destroyed.
  ClientStream(const std::shared_ptr<grpc::Channel>& channel, Listener& listener);
  // Ends the call at once; the listener is not called any more afterwards.
  ~ClientStream();

  // Queues a message; neither waits nor fails.
  void send(parameter_server::Message message);
  // Whether all messages have been handed to the network.
  bool is_drained() const;

 private:
  class Call;
  std::unique_ptr<Call> call_;
};

}  // namespace cohort::coordinator
