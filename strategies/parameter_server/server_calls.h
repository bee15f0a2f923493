#pragma once

#include <list>
#include <memory>
#include <mutex>

#include "core/base/error.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/parameter_server/service.h"
#include "strategies/parameter_server/stream_server.h"

namespace cohort::parameter_server {

// The calls by gRPC of a server's network: requests and replies in turn, which its service answers.
// Thread-safe.
class ServerCalls {
 public:
  // `service` must outlive the calls.
  explicit ServerCalls(Service& service) : service_(service) {}

  // A new call, whose caller may be these tasks. Where there are too many, it is refused, unless
  // one that has not said who it is that calls gives way.
  StreamServer::Reactor* accept(coordination::CertifiedTasks tasks);
  // One that comes too early, and will come again: it counts as no refusal.
  StreamServer::Reactor* turn_away(coordination::CertifiedTasks tasks, const Error& error);

 private:
  class Call;

  // Calls that have not said who it is that calls: they keep nobody away who does.
  void add_silent(const std::shared_ptr<Call>& call);
  void forget_silent(const Call& call);
  // Ends the one that has been silent for longest; false where there is none.
  bool end_first_silent();

  Service& service_;
  std::mutex mutex_;
  std::list<std::shared_ptr<Call>> silent_;  // in the order in which they began
};

}  // namespace cohort::parameter_server
