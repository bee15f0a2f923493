#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <list>
#include <mutex>
#include <poll.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/cluster/net/wake_up.h"

namespace cohort::testing {

// What a network can do to a connection.
struct NetworkFault {
  enum class Kind {
    kDelay,      // what follows waits for `delay`
    kStall,      // nothing more is read, and nobody is told
    kFlip,       // a bit is another one
    kHalfClose,  // this direction ends, the other goes on
    kClose,      // both directions end
    kReset       // both ends get a reset
  };
  enum class Direction { kToServer, kToClient };
  static constexpr int kAny = -1;

  Kind kind = Kind::kReset;
  Direction direction = Direction::kToServer;
  // How many bytes pass in that direction before; kFlip changes the one after them.
  int64_t after = 0;
  // Which connection, numbered from 0 as they are accepted: the first that fits.
  int connection = kAny;
  std::chrono::milliseconds delay{0};
  int bit = 0;
};

// Stands between clients and a server on 127.0.0.1, who see the port of the other in it, and passes
// on what they say, but for the faults it is told of. Each fault happens once. It listens until a
// server that was there has gone. Thread-safe.
class TcpFaultProxy {
 public:
  using Clock = std::chrono::steady_clock;
  using Kind = NetworkFault::Kind;
  using Direction = NetworkFault::Direction;

  explicit TcpFaultProxy(const net::InternetAddress& server, std::vector<NetworkFault> faults = {})
      : server_(server),
        listening_(net::listen_on(net::InternetAddress::parse("127.0.0.1:0", "the proxy"))),
        endpoint_(net::InternetAddress::of(listening_)),
        faults_(faults.begin(), faults.end()),
        thread_([this] { run(); }) {}
  ~TcpFaultProxy() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_up_.signal();
    thread_.join();
  }

  // Where clients find the server.
  net::InternetAddress endpoint() const { return endpoint_; }
  // Nothing passes from here on, on any connection, and neither end is told; until thaw().
  void freeze() { set_frozen(true); }
  void thaw() { set_frozen(false); }
  void add(const NetworkFault& fault) {
    const std::lock_guard lock(mutex_);
    faults_.push_back(fault);
    wake_up_.signal();
  }
  // Whether every fault has happened.
  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return faults_.empty();
  }
  int connections() const {
    const std::lock_guard lock(mutex_);
    return accepted_;
  }
  // How many clients have called, also where there was no server to connect them with.
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }

 private:
  static constexpr size_t kPiece = 64 * 1024;

  struct Flow {
    int from = -1, to = -1;
    Direction direction = Direction::kToServer;
    int64_t passed = 0;    // of what was read
    std::string pending;   // read, and not written yet
    bool ended = false;    // nothing more is read, and the reader shall know
    bool told = false;     // the reader knows
    bool stalled = false;  // nothing more is read
    Clock::time_point held_until = {};
  };
  struct Link {
    net::Descriptor client, server;
    int number = 0;
    Flow flows[2];
    bool over = false;
  };

  void set_frozen(bool frozen) {
    const std::lock_guard lock(mutex_);
    frozen_ = frozen;
    wake_up_.signal();
  }

  void run() {
    while (true) {
      std::vector<pollfd> polled{{wake_up_.fd(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
      int wait = -1;
      {
        const std::lock_guard lock(mutex_);
        if (stopping_) return;
        if (frozen_) {
          polled.resize(1);
        } else {
          move_all();
          for (const Link& link : links_)
            for (const Flow& flow : link.flows) add_polled(flow, polled, wait);
        }
      }
      poll(polled.data(), polled.size(), wait);
      if (polled[0].revents) wake_up_.clear();
      if (polled.size() > 1 && polled[1].revents) accept_one();
    }
  }

  static void add_polled(const Flow& flow, std::vector<pollfd>& polled, int& wait) {
    const auto held = std::chrono::ceil<std::chrono::milliseconds>(flow.held_until - Clock::now());
    if (held.count() > 0) {
      wait = wait < 0 ? static_cast<int>(held.count())
                      : std::min(wait, static_cast<int>(held.count()));
    } else if (!flow.pending.empty()) {
      polled.push_back({flow.to, POLLOUT, 0});
    } else if (!flow.ended && !flow.stalled) {
      polled.push_back({flow.from, POLLIN, 0});
    }
  }

  void accept_one() {
    net::Descriptor client(accept(listening_.get(), nullptr, nullptr));
    net::Descriptor server = client ? connect_to_server() : net::Descriptor();
    const std::lock_guard lock(mutex_);
    if (client) ++calls_;
    if (!server) {
      if (client && accepted_ > 0) listening_.reset();
      return;
    }
    Link link{.client = std::move(client), .server = std::move(server), .number = accepted_++};
    for (const net::Descriptor* end : {&link.client, &link.server}) net::send_at_once(end->get());
    const int near = link.client.get(), far = link.server.get();
    link.flows[0] = {.from = near, .to = far, .direction = Direction::kToServer};
    link.flows[1] = {.from = far, .to = near, .direction = Direction::kToClient};
    links_.push_back(std::move(link));
  }

  // None when it is not there.
  net::Descriptor connect_to_server() const {
    try {
      net::Descriptor server = net::start_connecting(server_);
      pollfd polled{server.get(), POLLOUT, 0};
      if (poll(&polled, 1, 1000) == 1 && net::connection_error(server.get()) == 0) return server;
    } catch (const Error&) {
    }
    return {};
  }

  void move_all() {
    for (Link& link : links_)
      for (Flow& flow : link.flows)
        while (!link.over && move(link, flow)) {
        }
    links_.remove_if([](const Link& link) { return link.over; });
  }

  // Whether there may be more to do.
  bool move(Link& link, Flow& flow) {
    if (Clock::now() < flow.held_until) return false;
    if (!flow.pending.empty()) return write(link, flow);
    if (flow.ended && !flow.told) {
      shutdown(flow.to, SHUT_WR);
      flow.told = true;
      link.over = link.flows[0].told && link.flows[1].told;
    }
    if (flow.ended || flow.stalled) return false;
    const auto fault = next_fault(link, flow);
    if (fault != faults_.end() && fault->kind != Kind::kFlip && fault->after <= flow.passed) {
      happen(*fault, link, flow);
      faults_.erase(fault);
      return true;
    }
    return read(link, flow, fault);
  }

  // The next one in a flow, or the end.
  std::list<NetworkFault>::iterator next_fault(const Link& link, const Flow& flow) {
    auto next = faults_.end();
    for (auto f = faults_.begin(); f != faults_.end(); ++f)
      if (f->direction == flow.direction &&
          (f->connection == NetworkFault::kAny || f->connection == link.number) &&
          (next == faults_.end() || f->after < next->after))
        next = f;
    return next;
  }

  static void happen(const NetworkFault& fault, Link& link, Flow& flow) {
    switch (fault.kind) {
      case Kind::kDelay:
        flow.held_until = Clock::now() + fault.delay;
        break;
      case Kind::kStall:
        flow.stalled = true;
        break;
      case Kind::kHalfClose:
        flow.ended = true;
        break;
      case Kind::kClose:
        link.over = true;
        break;
      case Kind::kReset:
        reset(link);
        break;
      case Kind::kFlip:
        break;
    }
  }

  static void reset(Link& link) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    for (const net::Descriptor* end : {&link.client, &link.server})
      setsockopt(end->get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    link.over = true;
  }

  bool write(Link& link, Flow& flow) {
    const ssize_t sent =
        send(flow.to, flow.pending.data(), flow.pending.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) reset(link);
      return false;
    }
    flow.pending.erase(0, static_cast<size_t>(sent));
    return true;
  }

  bool read(Link& link, Flow& flow, std::list<NetworkFault>::iterator fault) {
    const bool flips = fault != faults_.end() && fault->kind == Kind::kFlip;
    size_t room = kPiece;
    if (fault != faults_.end())
      room = std::min(
          room, static_cast<size_t>(std::max<int64_t>(fault->after - flow.passed, 0) + flips));
    flow.pending.resize(room);
    const ssize_t got = recv(flow.from, flow.pending.data(), room, MSG_DONTWAIT);
    const bool later = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    flow.pending.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && !later) reset(link);
    if (got == 0) flow.ended = true;
    if (got <= 0) return got == 0;
    flow.passed += got;
    if (flips && flow.passed > fault->after) {
      flow.pending.back() = static_cast<char>(flow.pending.back() ^ (1 << fault->bit));
      faults_.erase(fault);
    }
    return true;
  }

  const net::InternetAddress server_;
  net::Descriptor listening_;  // until the server has gone
  const net::InternetAddress endpoint_;
  const net::WakeUp wake_up_;
  mutable std::mutex mutex_;  // guards what follows
  std::list<NetworkFault> faults_;
  std::list<Link> links_;
  int calls_ = 0, accepted_ = 0;
  bool stopping_ = false, frozen_ = false;
  std::thread thread_;  // last: it uses what is above
};

}  // namespace cohort::testing
