#pragma once

#include <functional>
#include <memory>
#include <string>

#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/coordination/timing.h"

namespace cohort::coordination {

// The leader's side on the network: serves from its making to its destruction, on threads of its
// own. Members that are there at the end are told.
class LeaderServer {
 public:
  // Listens at the leader's address; the errors are those of resolve(), Security::check() and
  // Listener. `roster` must stay. `notice` gets lines for people, on threads of the server.
  LeaderServer(const Roster& roster, const std::string& job_id, Timing timing,
               const Security& security, std::function<void(const std::string&)> notice);
  ~LeaderServer();

 private:
  class Service;
  std::unique_ptr<Service> service_;
};

}  // namespace cohort::coordination
