#include "strategies/parameter_server/local_server.h"

#include <cerrno>
#include <chrono>
#include <exception>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/start_threads.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/net/descriptor_reserve.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/shared_stream.h"

namespace cohort::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kForever = Clock::time_point::max();
constexpr int kPauseMilliseconds = 50;  // when the system has no descriptors

}  // namespace

class LocalServer::Stream final : public CallerStream {
 public:
  Stream(LocalServer& server, net::Descriptor socket)
      : server_(server), stream_(std::move(socket)) {}

  std::shared_ptr<Start> greet() override {
    const auto hello = stream_.socket().get_greeting(Clock::now() + kHelloTime);
    if (hello.frame.kind != Frame::Kind::kHello) invalid("a caller has to say its word first");
    caller_ = {.pid = static_cast<int64_t>(hello.frame.number), .start_time = hello.frame.bytes};
    return server_.invitations_.redeem(hello.text);
  }

  void welcome() override {
    FrameSocket& socket = stream_.socket();
    SharedRegion region = SharedRegion::create(kRegionBytes, 0);
    const bool lends = may_map_memory_of(caller_);
    socket.put({.kind = Frame::Kind::kWelcome,
                .region = lends ? 1U : 0U,
                .number = static_cast<uint64_t>(region.descriptor()),
                .bytes = kRegionBytes});
    // The caller has mapped this region, and can map others.
    stream_.attach(std::move(region), caller_, true);
    pulse_ = stream_.pulse();
    socket.flush(Clock::now() + kHelloTime);
    socket.watch();
  }

  SessionKind kind() const override { return SessionKind::kSharedMemory; }

  Head receive_head() override {
    SharedStream::Head head = stream_.receive_head(kForever);
    return {.header = std::move(head.header), .payload_bytes = head.payload_bytes};
  }

  uint64_t receive_part(Exchange& exchange, uint64_t left, bool& go_on) override {
    const auto segment = stream_.receive_segment(left, kForever).memory;
    go_on = exchange.receive_shared(segment);
    return segment->bytes;
  }

  TakeMemory memory() override {
    return [this](size_t bytes) { return stream_.take(bytes, kForever); };
  }
  void send(const Message& message) override { stream_.send(message, kForever); }

  void refuse(const Error& error) override { stream_.socket().refuse(error); }

  void wait_until(const std::function<bool()>& ready) override { stream_.wait_until(ready); }
  std::shared_ptr<net::WakeUp> wake_up() const override { return stream_.wake_up(); }
  // Gradients that are being applied are read where the caller has them.
  void end_reading() override { stream_.end_reading(); }

  void beat() override {
    if (uint64_t* const pulse = pulse_) __atomic_add_fetch(pulse, 1, __ATOMIC_RELAXED);
  }
  void cancel() override { stream_.cancel(); }

 private:
  LocalServer& server_;
  SharedStream stream_;
  ProcessIdentity caller_;
  std::atomic<uint64_t*> pulse_ = nullptr;
};

LocalServer::LocalServer(Service& service)
    : name_("cohort-parameter-server-" + coordination::random_job_id()),
      listening_(listen_locally(name_)),
      callers_(service),
      thread_(start_thread([this] { listen(); })) {}

LocalServer::~LocalServer() {
  stopping_ = true;
  wake_.signal();
  thread_.join();
}

std::optional<LocalOffer> LocalServer::offer(const std::string& host,
                                             const std::shared_ptr<Start>& caller) {
  if (host != host_identity()) return std::nullopt;
  const std::string word = invitations_.invite(caller);
  if (word.empty()) return std::nullopt;
  return LocalOffer{.socket = name_, .word = word, .server = this_process()};
}

void LocalServer::listen() {
  pollfd waiting[2] = {{.fd = listening_.get(), .events = POLLIN},
                       {.fd = wake_.fd(), .events = POLLIN}};
  while (!stopping_) {
    if (poll(waiting, 2, -1) < 0 || waiting[0].revents == 0) continue;
    net::Descriptor socket(
        accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      if (socket.get() < net::first_reserved_descriptor()) accept(std::move(socket));
    } else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
      poll(waiting + 1, 1, kPauseMilliseconds);
    }
  }
}

void LocalServer::accept(net::Descriptor socket) {
  if (!is_of_this_user(socket)) return;  // goes on by gRPC
  try {
    callers_.serve(std::make_unique<Stream>(*this, std::move(socket)));
  } catch (const std::exception&) {  // no descriptors, or no memory: the same
  }
}

}  // namespace cohort::parameter_server
