#include "strategies/parameter_server/local_server.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/parameter_server/arriving_request.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/shared_stream.h"

namespace cohort::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kForever = Clock::time_point::max();
// For a caller to come with its word, and to say it.
constexpr milliseconds kOfferTime(10'000), kHelloTime(5000);
constexpr size_t kMaxOffers = 4096;
// How long requests under way may take when the server ends.
constexpr milliseconds kFarewell(200);
constexpr int kPauseMilliseconds = 50;  // when the system has no descriptors
constexpr int kBeatMilliseconds = static_cast<int>(FrameSocket::kBeat.count()) / 2;

// The way back to a caller whose thread waits for the answer.
class LocalCaller final : public Caller {
 public:
  explicit LocalCaller(std::shared_ptr<net::WakeUp> wake) : wake_(std::move(wake)) {}

  void resume() override {
    resumed_ = true;
    wake_->signal();
  }
  void reply() override { answer(std::nullopt); }
  void refuse(const Error& error) override { answer(error); }

  // For its thread.
  bool take_resumed() { return resumed_.exchange(false); }
  // Whether there is an answer; throws what the request is refused with.
  bool take_answer() {
    if (!answered_.exchange(false, std::memory_order_acquire)) return false;
    if (const auto error = std::exchange(error_, std::nullopt)) throw Error(*error);
    return true;
  }

 private:
  void answer(const std::optional<Error>& error) {
    error_ = error;
    answered_.store(true, std::memory_order_release);
    wake_->signal();
  }

  const std::shared_ptr<net::WakeUp> wake_;
  std::atomic<bool> resumed_ = false, answered_ = false;
  std::optional<Error> error_;
};

}  // namespace

// One caller's connection, with its thread.
class LocalServer::Connection {
 public:
  Connection(LocalServer& server, net::Descriptor socket)
      : server_(server),
        service_(server.service_),
        stream_(std::move(socket)),
        caller_(std::make_shared<LocalCaller>(stream_.wake_up())) {
    service_.opened();
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      service_.closed(session_);
      throw;
    }
  }
  ~Connection() { thread_.join(); }

  // Of the server's mutex.
  bool has_ended() const { return ended_; }
  bool is_idle() const { return ended_ || idle_; }
  void beat() const {
    if (pulse_ != nullptr) __atomic_add_fetch(pulse_, 1, __ATOMIC_RELAXED);
  }

  void cancel() { stream_.cancel(); }

 private:
  void run() {
    try {
      greet();
      for (;;) serve();
    } catch (const Error& error) {
      end_reading();
      refuse(error);
    } catch (const std::bad_alloc&) {
      end_reading();
      refuse(Error(Code::kResourceExhausted, "the server has no memory for this request"));
    }
    stream_.cancel();
    service_.closed(session_);
    mark([this] { ended_ = true; });
    server_.wake_.signal();
  }

  template <typename F>
  void mark(const F& change) {
    const std::lock_guard lock(server_.mutex_);
    change();
    server_.changed_.notify_all();
  }

  // Gradients that are being applied are read where the caller has them.
  void end_reading() {
    request_.reset();
    stream_.end_reading();
  }

  void refuse(const Error& error) {
    // The caller has gone, or the server ends.
    if (error.code() == Code::kUnavailable || error.code() == Code::kCancelled) return;
    service_.refused();
    try {
      std::string text;
      const Frame frame = error_frame(error, text);
      stream_.socket().put(frame, text);
      stream_.socket().flush(Clock::now() + kFarewell);
    } catch (const Error&) {  // nobody is there to be told
    }
  }

  void greet() {
    FrameSocket& socket = stream_.socket();
    const auto deadline = Clock::now() + kHelloTime;
    FrameSocket::Incoming hello;
    socket.get(hello, deadline);
    if (hello.frame.kind != Frame::Kind::kHello) invalid("a caller has to say its word first");
    service_.share(server_.redeem(hello.text), session_);
    SharedRegion region = SharedRegion::create(kRegionBytes, 0);
    const ProcessIdentity caller{.pid = static_cast<int64_t>(hello.frame.number),
                                 .start_time = hello.frame.bytes};
    const bool lends = may_map_memory_of(caller);
    socket.put({.kind = Frame::Kind::kWelcome,
                .region = lends ? 1U : 0U,
                .number = static_cast<uint64_t>(region.descriptor()),
                .bytes = kRegionBytes});
    // The caller has mapped this region, and can map others.
    stream_.attach(std::move(region), caller, true);
    mark([this] { pulse_ = stream_.pulse(); });
    socket.flush(deadline);
  }

  // One request.
  void serve() {
    mark([this] { idle_ = true; });
    SharedStream::Head head = stream_.receive_head(kForever);
    mark([this] { idle_ = false; });
    receive(std::move(head));
    request_.exchange()->complete();
    stream_.wait_until([this] { return caller_->take_answer(); });
    const TakeMemory take = [this](size_t bytes) { return stream_.take(bytes, kForever); };
    while (const auto message = request_.exchange()->next_message(take)) {
      uint64_t bytes = 0;
      for (const Piece& piece : message->payload) bytes += piece.bytes;
      service_.sent(bytes);
      stream_.send(*message, kForever);
    }
    request_.reset();
  }

  void receive(SharedStream::Head head) {
    for (;;) {
      request_.begin_message(service_, head.header, head.payload_bytes, caller_, session_);
      for (uint64_t left = head.payload_bytes; left > 0;) {
        const auto segment = stream_.receive_segment(left, kForever).memory;
        left -= segment->bytes;
        if (request_.exchange()->receive_shared(segment)) continue;
        if (left > 0 || !request_.complete())
          stream_.wait_until([this] { return caller_->take_resumed(); });
      }
      if (request_.complete()) return;
      head = stream_.receive_head(kForever);
    }
  }

  LocalServer& server_;
  Service& service_;
  SharedStream stream_;
  const std::shared_ptr<LocalCaller> caller_;
  Service::Session session_;
  ArrivingRequest request_;
  bool idle_ = false, ended_ = false;  // of the server's mutex
  uint64_t* pulse_ = nullptr;          // likewise
  std::thread thread_;
};

LocalServer::LocalServer(Service& service)
    : service_(service),
      name_("cohort-parameter-server-" + coordination::random_job_id()),
      listening_(listen_locally(name_)),
      thread_([this] { listen(); }) {}

LocalServer::~LocalServer() {
  stopping_ = true;
  wake_.signal();
  thread_.join();
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kFarewell, [this] {
      return std::ranges::all_of(connections_, [](const auto& c) { return c->is_idle(); });
    });
    for (const auto& connection : connections_) connection->cancel();
  }
  connections_.clear();
}

std::optional<LocalOffer> LocalServer::offer(const std::string& host,
                                             const std::shared_ptr<Start>& caller) {
  if (host != host_identity()) return std::nullopt;
  const std::string word = coordination::random_job_id();
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(offered_, [&](const auto& entry) { return entry.second.until < now; });
  if (offered_.size() >= kMaxOffers) return std::nullopt;
  offered_.emplace(word, Offered{.caller = caller, .until = now + kOfferTime});
  return LocalOffer{.socket = name_, .word = word, .server = this_process()};
}

std::shared_ptr<Start> LocalServer::redeem(const std::string& word) {
  const std::lock_guard lock(mutex_);
  const auto found = offered_.find(word);
  if (found == offered_.end() || found->second.until < Clock::now())
    fail(Code::kPermissionDenied, "the caller's word is not one that it has been given");
  const std::shared_ptr<Start> caller = found->second.caller;
  offered_.erase(found);
  return caller;
}

void LocalServer::listen() {
  pollfd waiting[2] = {{.fd = listening_.get(), .events = POLLIN},
                       {.fd = wake_.fd(), .events = POLLIN}};
  while (!stopping_) {
    const int ready = poll(waiting, 2, kBeatMilliseconds);
    if (ready < 0) continue;  // a signal
    beat();
    if (ready == 0) continue;
    if (waiting[1].revents != 0) {
      wake_.clear();
      remove_ended();
      continue;
    }
    net::Descriptor socket(
        accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      accept(std::move(socket));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      poll(waiting + 1, 1, kPauseMilliseconds);
    }
  }
}

void LocalServer::beat() {
  const std::lock_guard lock(mutex_);
  for (const auto& connection : connections_) connection->beat();
}

void LocalServer::accept(net::Descriptor socket) {
  // Whoever is turned away here goes on by gRPC.
  if (!is_of_this_user(socket) ||
      service_.sessions() >= static_cast<uint64_t>(service_.options().max_sessions))
    return;
  try {
    auto connection = std::make_unique<Connection>(*this, std::move(socket));
    const std::lock_guard lock(mutex_);
    connections_.push_back(std::move(connection));
  } catch (const std::exception&) {  // no descriptors, or no threads
  }
}

void LocalServer::remove_ended() {
  std::list<std::unique_ptr<Connection>> ended;
  const std::lock_guard lock(mutex_);
  for (auto at = connections_.begin(); at != connections_.end();) {
    const auto next = std::next(at);
    if ((*at)->has_ended()) ended.splice(ended.end(), connections_, at);
    at = next;
  }
}

}  // namespace cohort::parameter_server
