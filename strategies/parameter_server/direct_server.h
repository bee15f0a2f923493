#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/base/error.h"
#include "strategies/cluster/coordination/refusal_log.h"
#include "strategies/cluster/coordination/security.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/parameter_server/caller_threads.h"
#include "strategies/parameter_server/invitations.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server {

// With this byte, which neither HTTP/2 nor TLS begins with, a connection to the server's address
// begins that is no call by gRPC. What follows is by TLS where the job has certificates, and
// frames.
inline constexpr char kDirectByte = 1;

// Serves callers that come by a TCP connection without gRPC: payloads go from memory to memory.
// A caller needs a word that it was given by gRPC. Thread-safe.
class DirectServer {
 public:
  // Both must outlive it.
  DirectServer(Service& service, const coordination::Security& security)
      : service_(service), security_(security), callers_(service) {}

  // A word with which `caller` may come; empty when there is none to be had.
  std::string invite(const std::shared_ptr<Start>& caller) { return invitations_.invite(caller); }
  // A connection that begins with kDirectByte. Does not wait.
  void accept(net::Descriptor socket);

 private:
  class Stream;
  // Says, once a minute for each host, that somebody there has been refused who has not come as far
  // as a request.
  void tell_refused(const std::string& host, const Error& error);

  Service& service_;
  const coordination::Security& security_;
  Invitations invitations_;
  std::mutex refusals_mutex_;
  coordination::RefusalLog refusals_;
  CallerThreads callers_;
};

}  // namespace cohort::parameter_server
