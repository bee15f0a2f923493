#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

#include "strategies/cluster/coordination/running_clock.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/launcher/channel.h"
#include "strategies/cluster/launcher/messages.h"
#include "strategies/cluster/launcher/node_ports.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/rendezvous_server.h"
#include "strategies/cluster/launcher/report_schedule.h"
#include "strategies/cluster/net/internet_address.h"

namespace cohort::launcher {

// This node's part in a job on several: its connection to the rendezvous, its ports and, on one of
// the nodes, the rendezvous itself. It lives in the loop of whoever owns it and, but for looking up
// a name, never waits.
class Agent {
 public:
  // `options.nodes` is given. `note` prints a line. kInvalidArgument for certificates that do not
  // fit.
  Agent(const Options& options, std::function<void(const std::string&)> note);

  // Adds what to wait for. step() is to be called then, and at least every kStepInterval.
  void watch(std::vector<pollfd>& events) const;
  // Errors: kDeadlineExceeded when there is no rendezvous for too long, those of a refusal,
  // kFailedPrecondition where plain text is not allowed or only one side speaks it, and where this
  // is node 0 and its host has not the rendezvous' address, or its port is taken; kPermissionDenied
  // for certificates, kInvalidArgument where --host is not known or no address of this host,
  // kResourceExhausted where tasks get no ports.
  void step();
  bool has_joined() const { return has_joined_; }
  // What this node is to do: Start, Settle, End or Signal, the latter three with texts fit for a
  // terminal. A lost rendezvous and the end of the job are an End each.
  std::optional<Message> next_order();
  // The exit code of the job, when it is over or this node has left it.
  std::optional<int> job_code() const { return job_code_; }
  // Why there is no rendezvous any more, or none for this node, which was stopped for too long; ""
  // while there is one, and when the job is over.
  const std::string& loss() const { return loss_; }
  // For the rendezvous; nothing happens when it is lost.
  void tell(const Message& message);
  // Leaves the job; if this node serves the rendezvous, the job ends with that exit code.
  void leave(int code, const std::string& reason);
  // Whether nothing is left to send.
  bool is_done() const;
  // Of this node. It must have joined.
  const NodePorts& ports() const { return *ports_; }

 private:
  using Time = std::chrono::steady_clock::time_point;

  const NodeOptions& nodes() const { return *options_.nodes; }
  std::string place() const;
  std::chrono::milliseconds patience() const;
  bool may_serve() const { return nodes().rank <= 0; }

  void seek(Time now);
  void try_again(const std::string& why, Time now);
  std::vector<net::InternetAddress> find_rendezvous() const;
  void serve_if_here(const std::vector<net::InternetAddress>& addresses);
  // Of node 0, for this reason, an errno.
  [[noreturn]] void fail_to_serve(int error) const;
  JobRules rules() const;
  std::vector<std::pair<std::string, std::string>> terms() const;
  // Whether the connection is there by now.
  void finish_connecting(Time now);
  void join();
  // Where its tasks are.
  net::InternetAddress find_host() const;
  void reserve_ports(const net::InternetAddress& here);

  void listen(Time now);
  // What is said of a rendezvous that has been silent for too long; "" of one that has not.
  std::string silence(Time now) const;
  void take(Message message);
  void lose(const std::string& why);

  const Options& options_;
  const std::function<void(const std::string&)> note_;
  const coordination::Security security_;
  const std::string given_id_;  // COHORT_JOB_ID; "" without it
  coordination::RunningClock clock_;
  std::optional<RendezvousServer> server_;
  std::optional<NodePorts> ports_;

  // While there is no rendezvous:
  Time give_up_;
  ReportSchedule reports_ = ReportSchedule::steady();
  Time next_try_;  // also when the present one has failed, where nobody answers
  size_t tries_ = 0;
  bool has_answered_ = false;  // the present one: anything at all
  net::Descriptor connecting_;

  std::optional<Channel> channel_;
  bool has_joined_ = false;
  std::optional<int> job_code_;
  Time heard_, told_;
  std::deque<Message> orders_;
  std::string loss_;
};

}  // namespace cohort::launcher
