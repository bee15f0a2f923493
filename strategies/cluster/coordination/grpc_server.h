#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"

namespace grpc {
class ServerBuilder;
}  // namespace grpc

namespace cohort::coordination {

// A gRPC server at an address of its own, from its making to its destruction. It accepts
// connections by a Listener, may look at them before gRPC does, and stands guard (net::Http2Guard)
// over those in plain text.
class GrpcServer {
 public:
  struct Options {
    std::string name;  // of who serves, in messages: "leader"
    // Of what a call may send, and how many calls one connection may have.
    int message_bytes = 0;
    int usual_message_bytes = 0;  // longer ones are taken slowly (net::Http2Guard)
    // Of the first message of a call, where that has a limit of its own. In plain text a longer one
    // comes empty.
    std::optional<int> first_message_bytes = {};
    int metadata_bytes = 0;
    int calls_per_connection = 0;
    // Who connects has so long to say something; and to begin a call, and the next one after that,
    // where there is a limit to it.
    std::chrono::milliseconds handshake{};
    std::optional<std::chrono::milliseconds> idle = {};
    // After so long without a sign of life a peer is asked for one, which it has
    // `keepalive_timeout` to give. Others may ask us four times as often.
    std::chrono::milliseconds keepalive{}, keepalive_timeout{};
    // How long calls under way may take when the server ends.
    std::chrono::milliseconds farewell{};

    // What is done with a connection first, where set. Does not wait.
    std::function<void(const net::Descriptor& socket)> prepare = {};
    // Gets each connection with its first byte, which is still to be read, where set; gRPC has
    // those that are left there. On a thread of the server; does not wait.
    std::function<void(net::Descriptor& socket, char first)> take = {};
    // Hears of each host, "" when it is not known, that is hung up on because it speaks plain text
    // where calls are encrypted, or TLS where they are not, or because there are no descriptors for
    // it but those that are left to the rest of the program. On a thread of the server; does not
    // wait.
    std::function<void(const std::string& host, const Error& error)> refused;
  };

  // `add_services` registers what the calls are for. kFailedPrecondition when the port is in use,
  // the address is not of this host, or plain text would go beyond this host without permission;
  // kInvalidArgument for certificates that gRPC refuses.
  GrpcServer(const Address& address, const Security& security, Options options,
             const std::function<void(grpc::ServerBuilder&)>& add_services);
  // Cancels calls that are not over after `farewell`, and waits for all of them.
  ~GrpcServer();
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

 private:
  class Network;
  std::unique_ptr<Network> network_;
};

}  // namespace cohort::coordination
