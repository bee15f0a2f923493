#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/wake_up.h"
#include "strategies/parameter_server/caller_threads.h"
#include "strategies/parameter_server/invitations.h"
#include "strategies/parameter_server/local_offer.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server {

// Serves callers of this host through memory that they share with the server. A caller needs a word
// that it was given by gRPC. Thread-safe.
class LocalServer {
 public:
  // Of `service`, which must outlive it. kUnavailable and kResourceExhausted where the system does
  // not let it listen.
  explicit LocalServer(Service& service);
  // Requests under way have a moment to end.
  ~LocalServer();
  LocalServer(const LocalServer&) = delete;
  LocalServer& operator=(const LocalServer&) = delete;

  // Nothing for a caller of another host; `host` is its host_identity().
  std::optional<LocalOffer> offer(const std::string& host, const std::shared_ptr<Start>& caller);

 private:
  class Stream;

  void listen();
  void accept(net::Descriptor socket);

  const std::string name_;
  const net::Descriptor listening_;
  const net::WakeUp wake_;  // of the thread that listens: it is to end
  std::atomic<bool> stopping_ = false;
  Invitations invitations_;
  CallerThreads callers_;
  std::thread thread_;
};

}  // namespace cohort::parameter_server
