#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/wake_up.h"
#include "strategies/parameter_server/local_offer.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server {

// Serves callers of this host through memory that they share with the server, each on a thread of
// its own. A caller needs a word that it was given by gRPC, which has made sure who it is.
// Thread-safe.
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
  using Time = std::chrono::steady_clock::time_point;
  struct Offered {
    std::shared_ptr<Start> caller;
    Time until;
  };
  class Connection;

  void listen();
  // Tells callers that this process lives.
  void beat();
  void accept(net::Descriptor socket);
  // Who was given this word; it holds once. kPermissionDenied.
  std::shared_ptr<Start> redeem(const std::string& word);
  void remove_ended();

  Service& service_;
  const std::string name_;
  const net::Descriptor listening_;
  const net::WakeUp wake_;  // of the thread that accepts: something has ended
  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Offered> offered_;  // by word
  std::list<std::unique_ptr<Connection>> connections_;
  std::thread thread_;
};

}  // namespace cohort::parameter_server
