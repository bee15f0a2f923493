#include "strategies/cluster/reachability.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "core/base/error.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  explicit Socket(const addrinfo& info)
      : descriptor_(socket(info.ai_family, info.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC,
                           info.ai_protocol)) {}
  ~Socket() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

struct Resolved {
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> first{nullptr, freeaddrinfo};
  std::string error;
};

Resolved resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  Resolved resolved;
  const int status =
      getaddrinfo(address.host().c_str(), std::to_string(address.port()).c_str(), &hints, &found);
  if (status == 0) {
    resolved.first.reset(found);
  } else {
    resolved.error = str("the name is not known: ", gai_strerror(status));
  }
  return resolved;
}

std::string system_error(int number) {
  char text[128];
  return strerror_r(number, text, sizeof text);
}

// Waits for a connection under way; the error number, 0 once it stands.
int await_connection(int descriptor, Clock::time_point deadline) {
  pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    if (ready < 0 || getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
    return error;
  }
}

int connect_to(const addrinfo& info, Clock::time_point deadline) {
  const Socket socket(info);
  if (socket.descriptor() < 0) return errno;
  if (connect(socket.descriptor(), info.ai_addr, info.ai_addrlen) == 0) return 0;
  return errno == EINPROGRESS ? await_connection(socket.descriptor(), deadline) : errno;
}

Reachability probe_one(const Address& address, std::chrono::milliseconds timeout) {
  const auto begin = Clock::now();
  const Resolved resolved = resolve(address, 0);
  if (!resolved.first) return {false, resolved.error};
  int error = 0;
  for (const addrinfo* info = resolved.first.get(); info != nullptr; info = info->ai_next) {
    error = connect_to(*info, begin + timeout);
    if (error == 0) {
      const std::chrono::duration<double, std::milli> taken = Clock::now() - begin;
      char text[32];
      std::snprintf(text, sizeof text, "in %.1f ms", taken.count());
      return {true, text};
    }
  }
  if (error == ETIMEDOUT) return {false, str("no answer within ", timeout.count(), " ms")};
  return {false, system_error(error)};
}

// Shared with the probing threads, which may outlast the call: looking up a name cannot be stopped.
struct Probes {
  std::vector<Address> addresses;
  std::chrono::milliseconds timeout{};
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0, done = 0;
  std::vector<Reachability> results;

  void work() {
    std::unique_lock lock(mutex);
    while (next < addresses.size()) {
      const size_t i = next++;
      lock.unlock();
      Reachability result = probe_one(addresses[i], timeout);
      lock.lock();
      results[i] = std::move(result);
      ++done;
      changed.notify_all();
    }
  }
};

}  // namespace

std::vector<Reachability> probe(const std::vector<Address>& addresses,
                                std::chrono::milliseconds timeout) {
  constexpr size_t kThreads = 128;
  const auto probes = std::make_shared<Probes>();
  probes->addresses = addresses;
  probes->timeout = timeout;
  probes->results.assign(addresses.size(), {false, "the name is still being looked up"});
  for (size_t i = 0; i < std::min(addresses.size(), kThreads); ++i) {
    std::thread([probes] { probes->work(); }).detach();
  }
  const auto rounds = static_cast<int64_t>((addresses.size() + kThreads - 1) / kThreads);
  const auto slack = std::chrono::seconds(2);  // for threads to get a turn on a busy machine
  std::unique_lock lock(probes->mutex);
  probes->changed.wait_for(lock, rounds * timeout + slack,
                           [&] { return probes->done == addresses.size(); });
  probes->next = addresses.size();  // whoever comes back late stops
  return probes->results;
}

Reachability probe_listening(const Address& address) {
  const Resolved resolved = resolve(address, AI_PASSIVE);
  if (!resolved.first) return {false, resolved.error};
  const addrinfo& info = *resolved.first;
  const Socket socket(info);
  const int reuse = 1;  // connections of an earlier run that linger are no obstacle
  if (socket.descriptor() >= 0 &&
      setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse) == 0 &&
      bind(socket.descriptor(), info.ai_addr, info.ai_addrlen) == 0 &&
      listen(socket.descriptor(), 1) == 0) {
    return {true, "this task; the port is free"};
  }
  return {false, str("this task cannot listen here: ", system_error(errno))};
}

}  // namespace cohort
