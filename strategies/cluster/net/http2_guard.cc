#include "strategies/cluster/net/http2_guard.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <poll.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

#include "core/base/start_threads.h"
#include "strategies/cluster/net/descriptor_reserve.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFarewell(1000);
constexpr size_t kScratch = 128 * 1024;
// Of a long message, and how long after it the next one is taken.
constexpr size_t kPiece = 64 * 1024;
constexpr milliseconds kPause(1);

int milliseconds_until(Clock::time_point time) {  // or without end
  if (time == Clock::time_point::max()) return -1;
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<milliseconds>(time - Clock::now()).count()));
}

// What one side says to the other.
class Flow {
 public:
  Flow(int from, int to) : from_(from), to_(to) {}

  // Moves what goes into `scratch`, without waiting; where that is empty, what has been taken
  // before. `accept` sees what comes, and may change it; where it says false so does this, and
  // nothing is passed on.
  template <typename Accept>
  bool move(std::span<char> scratch, const Accept& accept) {
    if (!rest_.empty()) {
      rest_.erase(0, give(rest_));
    } else if (wants_to_take() && !scratch.empty()) {
      const std::span<char> bytes = take(scratch);
      if (!accept(bytes)) return false;
      const std::string_view text(bytes.data(), bytes.size());
      rest_ = text.substr(give(text));
    }
    if (ended_ && rest_.empty()) shutdown(to_, SHUT_WR);
    return true;
  }
  bool is_over() const { return broken_ || (ended_ && rest_.empty()); }
  bool wants_to_take() const { return !ended_ && !broken_ && rest_.empty(); }
  bool wants_to_give() const { return !rest_.empty(); }

 private:
  std::span<char> take(std::span<char> scratch) {
    const ssize_t got = recv(from_, scratch.data(), scratch.size(), MSG_DONTWAIT);
    if (got > 0) return scratch.first(static_cast<size_t>(got));
    ended_ = got == 0 || !would_block(errno);
    return {};
  }

  // How many bytes there is nothing more to be done about.
  size_t give(std::string_view bytes) {
    size_t given = 0;
    while (given < bytes.size()) {
      const ssize_t sent =
          send(to_, &bytes[given], bytes.size() - given, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) {
        given += static_cast<size_t>(sent);
        continue;
      }
      if (would_block(errno)) return given;
      broken_ = true;  // nobody takes it
      return bytes.size();
    }
    return given;
  }

  const int from_, to_;
  std::string rest_;  // what has come and is still to be given
  bool ended_ = false, broken_ = false;
};

// Where two connections would have one name, as through two ports, the second has none.
void give_name(const Descriptor& socket, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t bytes = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), bytes);  // behind a zero: in no folder
  [[maybe_unused]] const int bound =
      bind(socket.get(), reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes));
}

}  // namespace

class Http2Guard::Connection {
 public:
  Connection(Descriptor client, const std::optional<InternetAddress>& peer, Descriptor inner,
             Http2Sizes::Limits limits)
      : client_(std::move(client)),
        peer_(peer),
        inner_(std::move(inner)),
        sizes_(limits),
        in_(client_.get(), inner_.get()),
        out_(inner_.get(), client_.get()) {}

  void add_polled(std::vector<pollfd>& polled) const {
    const int paused = is_paused() ? POLLIN : 0;
    polled.push_back(polled_of(client_, wanted(in_, out_) & ~paused, false));
    // That gRPC has closed its socket is to be noticed also while what it said waits for the
    // client.
    const bool is_ending = until_ != Clock::time_point::max();
    polled.push_back(polled_of(inner_, wanted(out_, in_), !is_ending));
  }

  // Whether it goes on: until gRPC has closed its socket, which it does when the client has, and
  // what it has said is passed on, or the client has had some time to take it; or until there is no
  // memory for what is passed on.
  bool move(std::span<char> scratch, bool has_hung_up) try {
    const bool fits = move_in(scratch);
    out_.move(scratch, [](std::span<char>) { return true; });
    if (has_hung_up) end_soon();
    is_refused_ = !fits;
    return fits && !out_.is_over();
  } catch (const std::bad_alloc&) {
    return false;
  }

  // When it is to be looked at again, though nothing comes.
  Clock::time_point next_look() const { return is_paused() ? std::min(until_, paused_) : until_; }
  void end_soon() { until_ = std::min(until_, Clock::now() + kFarewell); }
  Clock::time_point until() const { return until_; }
  const std::optional<InternetAddress>& peer() const { return peer_; }
  // With which byte a client has begun that is hung up on for what it has sent.
  std::optional<char> refused_first() const { return is_refused_ ? first_ : std::nullopt; }

 private:
  bool is_paused() const { return Clock::now() < paused_; }
  bool move_in(std::span<char> scratch) {
    if (is_paused())
      scratch = {};
    else if (sizes_.in_long_message())
      scratch = scratch.first(kPiece);
    const bool fits = in_.move(scratch, [this](std::span<char> bytes) {
      if (!first_ && !bytes.empty()) first_ = bytes[0];
      return sizes_.accept(bytes);
    });
    if (!scratch.empty() && sizes_.in_long_message()) paused_ = Clock::now() + kPause;
    return fits;
  }
  static int wanted(const Flow& from, const Flow& to) {
    return (from.wants_to_take() ? POLLIN : 0) | (to.wants_to_give() ? POLLOUT : 0);
  }
  // One that nothing is wanted of is not polled at all, or its end would be found over and over.
  static pollfd polled_of(const Descriptor& socket, int events, bool also_for_its_end) {
    const bool is_polled = events != 0 || also_for_its_end;
    return {.fd = is_polled ? socket.get() : -1, .events = static_cast<short>(events)};
  }

  const Descriptor client_;
  const std::optional<InternetAddress> peer_;
  const Descriptor inner_;
  Http2Sizes sizes_;
  std::optional<char> first_;  // of what the client has sent
  bool is_refused_ = false;
  Flow in_, out_;
  Clock::time_point until_ = Clock::time_point::max();
  Clock::time_point paused_{};  // so long nothing more of a long message is taken
};

Http2Guard::Http2Guard(Http2Sizes::Limits limits, HungUp hung_up)
    : limits_(limits), hung_up_(std::move(hung_up)), thread_(start_thread([this] { run(); })) {}

Http2Guard::~Http2Guard() {
  ending_ = true;
  wake_.signal();
  thread_.join();
}

Descriptor Http2Guard::guard(Descriptor client) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return {};
  Descriptor inner(ends[0]), given(ends[1]);
  if (std::max(ends[0], ends[1]) >= first_reserved_descriptor()) return {};
  const auto peer = InternetAddress::of_peer(client);
  if (peer) give_name(inner, peer->text());
  {
    const std::lock_guard lock(mutex_);
    added_.push_back(
        std::make_unique<Connection>(std::move(client), peer, std::move(inner), limits_));
  }
  wake_.signal();
  return given;
}

void Http2Guard::take_added(std::vector<std::unique_ptr<Connection>>& connections,
                            std::vector<pollfd>& polled) {
  const std::lock_guard lock(mutex_);
  try {
    connections.reserve(connections.size() + added_.size());
    polled.reserve(2 * (connections.size() + added_.size()) + 1);
    std::ranges::move(added_, std::back_inserter(connections));
  } catch (const std::bad_alloc&) {  // they are hung up on
  }
  added_.clear();
}

void Http2Guard::tell_of(const Connection& connection) const {
  const auto first = connection.refused_first();
  if (!first || !hung_up_) return;
  try {
    hung_up_(connection.peer(), *first);
  } catch (const std::bad_alloc&) {  // nobody is told
  }
}

void Http2Guard::run() {
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<pollfd> polled;
  std::vector<char> scratch(kScratch);
  while (true) {
    wake_.clear();
    take_added(connections, polled);
    if (ending_ && connections.empty()) return;

    polled.clear();
    auto until = Clock::time_point::max();
    for (const auto& connection : connections) {
      if (ending_) connection->end_soon();
      connection->add_polled(polled);
      until = std::min(until, connection->next_look());
    }
    polled.push_back({.fd = wake_.fd(), .events = POLLIN});
    poll(polled.data(), polled.size(), milliseconds_until(until));
    for (size_t i = 0; i < connections.size(); ++i) {
      const int client = polled[2 * i].revents, inner = polled[2 * i + 1].revents;
      if (((client | inner) != 0 && !connections[i]->move(scratch, (inner & POLLHUP) != 0)) ||
          connections[i]->until() <= Clock::now()) {
        tell_of(*connections[i]);
        connections[i].reset();
      }
    }
    std::erase(connections, nullptr);
  }
}

}  // namespace cohort::net
