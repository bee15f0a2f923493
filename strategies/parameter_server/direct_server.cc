#include "strategies/parameter_server/direct_server.h"

#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <sys/socket.h>
#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/net/internet_address.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/parameter_server/frame_socket.h"

namespace cohort::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kForever = Clock::time_point::max();
// A host that has gone is noticed after so long.
constexpr std::chrono::milliseconds kSilence(5000);

}  // namespace

class DirectServer::Stream final : public CallerStream {
 public:
  Stream(DirectServer& server, net::Descriptor socket, std::string host)
      : server_(server),
        host_(std::move(host)),
        socket_(server.security_.connect(std::move(socket), net::Stream::End::kCalled)) {}

  std::shared_ptr<Start> greet() override {
    try {
      return recognise();
    } catch (const Error& error) {
      // Who has gone, or is slow, is refused nothing.
      if (error.code() != Code::kUnavailable && error.code() != Code::kCancelled &&
          error.code() != Code::kDeadlineExceeded)
        server_.tell_refused(host_, error);
      throw;
    }
  }

  void welcome() override {
    socket_.put({.kind = Frame::Kind::kWelcome});
    socket_.flush(Clock::now() + kHelloTime);
    socket_.watch();
  }

  std::shared_ptr<Start> recognise() {
    const auto deadline = Clock::now() + kHelloTime;
    socket_.shake_hands(deadline);
    const FrameSocket::Incoming hello = socket_.get_greeting(deadline);
    if (hello.frame.kind != Frame::Kind::kHello) invalid("a caller has to say its word first");
    auto caller = server_.invitations_.redeem(hello.text);
    server_.security_.tasks_of(socket_.stream())
        .check(server_.service_.options().job_id, caller->task);
    return caller;
  }

  SessionKind kind() const override { return SessionKind::kDirect; }

  Head receive_head() override {
    FrameSocket::Incoming incoming;
    socket_.get(incoming, kForever);
    if (incoming.frame.kind != Frame::Kind::kMessage)
      invalid("a frame of kind ", static_cast<uint32_t>(incoming.frame.kind),
              " came where a message was due");
    return {.header = std::move(incoming.text), .payload_bytes = incoming.frame.bytes};
  }

  uint64_t receive_part(Exchange& exchange, uint64_t left, bool& go_on) override {
    const auto part = socket_.receive(room_of(exchange), left, kForever);
    const AtWork at_work(*this);
    go_on = exchange.receive(part.data(), part.size());
    return part.size();
  }

  void send(const Message& message) override { socket_.send(message, kForever); }
  void refuse(const Error& error) override { socket_.refuse(error); }

  void wait_until(const std::function<bool()>& ready) override {
    const AtWork at_work(*this);
    while (!ready()) socket_.wait(*wake_);
  }
  std::shared_ptr<net::WakeUp> wake_up() const override { return wake_; }

  void begin_work() override { set_working(true); }
  void end_work() override { set_working(false); }
  void beat() override {
    const std::lock_guard lock(work_mutex_);
    if (is_working_) socket_.beat();
  }
  void cancel() override { socket_.cancel(); }

 private:
  std::span<char> room_of(Exchange& exchange) {
    const AtWork at_work(*this);
    return exchange.room();
  }
  void set_working(bool working) {
    const std::lock_guard lock(work_mutex_);
    is_working_ = working;
  }

  DirectServer& server_;
  const std::string host_;
  FrameSocket socket_;
  const std::shared_ptr<net::WakeUp> wake_ = std::make_shared<net::WakeUp>();
  std::mutex work_mutex_;    // while is_working_, of what is sent
  bool is_working_ = false;  // the thread of this stream does not use the connection
};

void DirectServer::tell_refused(const std::string& host, const Error& error) {
  std::optional<std::string> line;
  {
    const std::lock_guard lock(refusals_mutex_);
    line = refusals_.line(host, error, Clock::now());
  }
  if (line) service_.options().notice("parameter server: " + *line);
}

void DirectServer::accept(net::Descriptor socket) {
  char first = 0;
  if (recv(socket.get(), &first, 1, MSG_DONTWAIT) != 1 || first != kDirectByte) return;
  net::send_at_once(socket.get());
  net::break_when_silent(socket.get(), kSilence);
  try {
    const auto peer = net::InternetAddress::of_peer(socket);
    callers_.serve(
        std::make_unique<Stream>(*this, std::move(socket), peer ? peer->host() : std::string()));
  } catch (const std::exception&) {  // no descriptors, or no memory
  }
}

}  // namespace cohort::parameter_server
