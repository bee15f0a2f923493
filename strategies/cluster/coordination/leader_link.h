#pragma once

#include <chrono>
#include <memory>

#include "core/base/error.h"
#include "strategies/cluster/address.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/coordination/timing.h"

namespace cohort::proto {
class FromLeader;
class FromMember;
}  // namespace cohort::proto

namespace cohort::coordination {

// A member's connection to its leader: one call.
class LeaderLink {
 public:
  // Called on threads of gRPC, one call at a time; must not block, nor destroy the link.
  class Listener {
   public:
    virtual ~Listener() = default;
    // May throw std::bad_alloc, which ends the link.
    virtual void received(const proto::FromLeader& message) = 0;
    // The last call. `reason` is for people. Must not throw.
    virtual void closed(const std::string& reason) = 0;
  };

  // Starts to connect. Ends, too, when the leader has been silent for three times `timing.dead`.
  // `listener` must stay until the link is destroyed.
  LeaderLink(const Address& leader, const net::InternetAddress& endpoint, const Timing& timing,
             const Security& security, Listener& listener);
  // Ends the call at once if it has not ended; the listener is not called any more.
  ~LeaderLink();

  // Queues a message; neither waits nor fails.
  void send(const proto::FromMember& message);
  // Sends what is queued, then waits until the leader has ended the call, `timeout` at most.
  void drain(std::chrono::milliseconds timeout);

 private:
  class Call;
  std::unique_ptr<Call> call_;
};

}  // namespace cohort::coordination
