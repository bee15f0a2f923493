#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"

namespace grpc {
class ByteBuffer;
template <class Request, class Response>
class ServerBidiReactor;
}  // namespace grpc

namespace cohort::parameter_server {

// The network of a server that has one method: calls that carry messages both ways (wire.h). It
// listens from its making to its destruction, which ends the calls that are open.
class StreamServer {
 public:
  using Reactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

  // Makes the reactor of a new call, on a thread of gRPC, whose caller may be these tasks.
  using Accept = std::function<Reactor*(coordination::CertifiedTasks)>;

  // Connections that begin with a certain byte, which neither HTTP/2 nor TLS begins with, are no
  // calls: they go here, with that byte to be read, on a thread of the server. Must not wait.
  struct Direct {
    char first_byte = 0;
    std::function<void(net::Descriptor)> accept;  // null: there are none
  };

  struct Options {
    std::string name;    // of the server, in messages
    std::string method;  // full, as "/package.Service/Method"
    Accept accept;
    Direct direct = {};
    // Gets a line about each host that speaks plain text where it is to speak TLS, or TLS where it
    // is not, once a minute.
    std::function<void(const std::string& line)> notice;
  };

  // kFailedPrecondition when the port is in use, the
  // address is not of this host, or plain text would go beyond this host without permission;
  // kInvalidArgument for certificates that gRPC refuses.
  StreamServer(const Address& address, const coordination::Security& security, Options options);
  ~StreamServer();
  StreamServer(const StreamServer&) = delete;
  StreamServer& operator=(const StreamServer&) = delete;

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

}  // namespace cohort::parameter_server
