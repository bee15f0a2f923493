#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/environment.h"
#include "strategies/parameter_server/client_options.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/link.h"

namespace cohort::parameter_server {

namespace proto {
class Reply;
class Request;
}  // namespace proto

// A client's calls to its server, and the connections that they take: these are kept, one for each
// call that is under way at a time. Errors as ParameterClient says. Thread-safe.
class ClientCalls {
 public:
  using Time = Link::Time;
  using Payload = std::vector<Piece>;

  // The options, which have no gaps any more, outlive this.
  ClientCalls(const Address& server, const ParameterClientOptions& options,
              const Environment& environment);
  ~ClientCalls();
  ClientCalls(const ClientCalls&) = delete;
  ClientCalls& operator=(const ClientCalls&) = delete;

  // Sends a request, and lets `receive` take the reply, which may come until `until`; both again
  // after the server was away. What the server waits for, it does for `wait` at most.
  void call(proto::Request& request, const Payload& payload, Time deadline,
            const std::function<void(Link& link, Time until)>& receive,
            std::chrono::milliseconds wait = std::chrono::milliseconds::max());
  // A request whose reply is one header.
  proto::Reply ask(proto::Request& request, const Payload& payload, Time deadline);
  // One that may be lost: where there is no connection just now, or no reply by then.
  void say(proto::Request& request, Time deadline);

  // All calls under way and all later ones throw kCancelled, until resume().
  void cancel();
  void resume();

 private:
  std::unique_ptr<Link> take_link(Time deadline);
  // By an idle link, where there is one; else by a new one, which is not connected yet. Whether it
  // is new.
  bool replace(std::unique_ptr<Link>& link, Link::Unconnected unconnected);
  void give_back(std::unique_ptr<Link> link);
  // Replaces a new link by one without gRPC, where that can be.
  void upgrade(std::unique_ptr<Link>& link, Time deadline);
  // By this one, if it can be connected.
  bool replace(std::unique_ptr<Link>& link, const std::function<std::unique_ptr<Link>()>& open,
               Time deadline);
  // Tells the server, over all connections that are not in use, that this process is there.
  void beat_regularly();
  void introduce(proto::Request& request, Time deadline,
                 std::chrono::milliseconds wait = std::chrono::milliseconds::max()) const;
  // "parameter server ps:0 at 10.0.0.7:2222".
  std::string described_server() const;
  // What may be behind an error where no call has ever come through; or nothing. REQUIRES, here and
  // below: mutex_ held.
  std::string about_certificates(const Error& error) const;
  // As whoever has made the call is told: with the server's name and address.
  Error named(const Error& error) const;

  const Address server_;
  const ParameterClientOptions& options_;
  const coordination::Security security_;
  std::mutex mutex_;
  std::shared_ptr<grpc::Channel> channel_;  // made when there is a need, and the name is known
  std::vector<std::unique_ptr<Link>> idle_;
  std::vector<Link*> busy_;
  bool cancelled_ = false, ending_ = false;
  bool has_answered_ = false;  // the server, ever
  bool may_upgrade_;           // nothing has spoken against it since the server started
  std::condition_variable wake_;
  std::thread heart_;  // from the first connection without gRPC on
};

}  // namespace cohort::parameter_server
