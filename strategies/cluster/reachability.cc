#include "strategies/cluster/reachability.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/format_number.h"
#include "core/base/start_threads.h"
#include "strategies/cluster/net/socket.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// Waits for a connection under way; the error number, 0 once it stands.
int await_connection(const net::Descriptor& socket, Clock::time_point deadline) {
  pollfd waiting{.fd = socket.get(), .events = POLLOUT, .revents = 0};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    const int ready = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) return ETIMEDOUT;
    return ready < 0 ? errno : net::connection_error(socket.get());
  }
}

int connect_to(const net::InternetAddress& address, Clock::time_point deadline) {
  const net::Descriptor socket = address.try_socket(SOCK_NONBLOCK);
  if (!socket) return errno;
  if (address.connect(socket) == 0) return 0;
  return errno == EINPROGRESS ? await_connection(socket, deadline) : errno;
}

Reachability probe_one(const Address& address, std::chrono::milliseconds timeout) {
  const auto begin = Clock::now();
  int error = 0;
  try {
    for (const auto& found : net::InternetAddress::resolve(address.host(), address.port())) {
      error = connect_to(found, begin + timeout);
      if (error == 0) {
        const std::chrono::duration<double, std::milli> taken = Clock::now() - begin;
        return {true, str("in ", format_number(taken.count(), std::chars_format::fixed, 1), " ms")};
      }
    }
  } catch (const Error& unknown) {
    return {false, unknown.message()};
  }
  if (error == ETIMEDOUT) return {false, str("no answer within ", timeout.count(), " ms")};
  return {false, net::error_text(error)};
}

// Shared with the probing threads, which may outlast the call: looking up a name cannot be stopped.
struct Probes {
  std::vector<Address> addresses;
  std::chrono::milliseconds timeout{};
  Examination examine;
  std::mutex mutex;
  std::condition_variable changed;
  size_t next = 0, done = 0;
  std::vector<Reachability> results;

  void work() {
    std::unique_lock lock(mutex);
    while (next < addresses.size()) {
      const size_t i = next++;
      lock.unlock();
      const auto deadline = Clock::now() + timeout;
      Reachability result = probe_one(addresses[i], timeout);
      if (result.reachable && examine) result = examine(addresses[i], std::move(result), deadline);
      lock.lock();
      results[i] = std::move(result);
      ++done;
      changed.notify_all();
    }
  }
  // Nothing more is begun.
  void stop() {
    const std::lock_guard lock(mutex);
    next = addresses.size();
  }
};

}  // namespace

std::vector<Reachability> probe(const std::vector<Address>& addresses,
                                std::chrono::milliseconds timeout, const Examination& examine) {
  constexpr size_t kMostThreads = 128;
  const auto probes = std::make_shared<Probes>();
  probes->addresses = addresses;
  probes->timeout = timeout;
  probes->examine = examine;
  probes->results.assign(addresses.size(), {false, "the name is still being looked up"});
  const size_t threads = std::min(addresses.size(), kMostThreads);
  for (std::thread& thread : start_threads(
           static_cast<int>(threads), [probes](int) { probes->work(); },
           [&](const Error&) { probes->stop(); }))
    thread.detach();
  const auto rounds = static_cast<int64_t>((addresses.size() + kMostThreads - 1) / kMostThreads);
  const auto slack = std::chrono::seconds(2);  // for threads to get a turn on a busy machine
  std::unique_lock lock(probes->mutex);
  probes->changed.wait_for(lock, rounds * timeout + slack,
                           [&] { return probes->done == addresses.size(); });
  probes->next = addresses.size();  // whoever comes back late stops
  return probes->results;
}

Reachability probe_listening(const Address& address) {
  try {
    const auto found = net::InternetAddress::resolve(address.host(), address.port())[0];
    const net::Descriptor socket = found.socket();
    // Connections of an earlier run that linger are no obstacle.
    net::set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (found.bind(socket) == 0 && listen(socket.get(), 1) == 0)
      return {true, "this task; the port is free"};
    return {false, str("this task cannot listen here: ", net::error_text(errno))};
  } catch (const Error& error) {
    return {false, error.message()};
  }
}

}  // namespace cohort
