#include "strategies/cluster/net/arrivals.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "core/base/start_threads.h"
#include "strategies/cluster/net/socket.h"

namespace cohort::net {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPatience(5000);
// All of them are looked at whenever one has something to say.
constexpr ptrdiff_t kMostWaiting = 4096;

// Whether a connection is one no longer, or has said something: then the first byte of it.
enum class Came { kNothing, kByte, kEnd };
Came peek(const Descriptor& socket, char& first) {
  const ssize_t got = recv(socket.get(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got == 1) return Came::kByte;
  const bool waits = got < 0 && would_block(errno);
  return waits ? Came::kNothing : Came::kEnd;
}

}  // namespace

Arrivals::Arrivals(Arrived arrived)
    : arrived_(std::move(arrived)), thread_(start_thread([this] { run(); })) {}

Arrivals::~Arrivals() {
  stopping_ = true;
  wake_.signal();
  thread_.join();
}

void Arrivals::add(Descriptor socket) {
  {
    const std::lock_guard lock(mutex_);
    added_.push_back({std::move(socket), Clock::now() + kPatience});
  }
  wake_.signal();
}

void Arrivals::take_added(std::vector<Waiting>& waiting, std::vector<pollfd>& polled) {
  const std::lock_guard lock(mutex_);
  try {
    waiting.reserve(waiting.size() + added_.size());
    polled.reserve(waiting.size() + added_.size() + 1);
    std::ranges::move(added_, std::back_inserter(waiting));
  } catch (const std::bad_alloc&) {  // they are hung up on
  }
  added_.clear();
  // Who has come first has had the most time.
  if (waiting.size() > kMostWaiting) waiting.erase(waiting.begin(), waiting.end() - kMostWaiting);
}

bool Arrivals::is_awaited(Waiting& one, const pollfd& polled) {
  char first = 0;
  const Came came = polled.revents == 0 ? Came::kNothing : peek(one.socket, first);
  if (came == Came::kNothing) return one.until > Clock::now();
  try {
    if (came == Came::kByte) arrived_(std::move(one.socket), first);
  } catch (const std::bad_alloc&) {  // it is hung up on
  }
  return false;
}

void Arrivals::look(std::vector<Waiting>& waiting, const std::vector<pollfd>& polled) {
  auto of = polled.begin();
  std::erase_if(waiting, [&](Waiting& one) { return !is_awaited(one, *of++); });
}

void Arrivals::run() {
  std::vector<Waiting> waiting;
  std::vector<pollfd> polled;
  while (!stopping_) {
    wake_.clear();
    take_added(waiting, polled);
    polled.clear();
    for (const Waiting& one : waiting) polled.push_back({.fd = one.socket.get(), .events = POLLIN});
    polled.push_back({.fd = wake_.fd(), .events = POLLIN});
    milliseconds limit(-1);
    if (!waiting.empty())  // in the order in which they have come
      limit = std::max(milliseconds(0),
                       std::chrono::ceil<milliseconds>(waiting[0].until - Clock::now()));
    poll(polled.data(), polled.size(), static_cast<int>(limit.count()));
    look(waiting, polled);
  }
}

}  // namespace cohort::net
