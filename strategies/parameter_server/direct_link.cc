#include "strategies/parameter_server/direct_link.h"

#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/parameter_server/direct_server.h"
#include "strategies/parameter_server/frame_socket.h"

namespace cohort::parameter_server {
namespace {

class DirectCarrier final : public Link::Carrier {
 public:
  DirectCarrier(const Address& server, const coordination::Security& security, std::string word,
                std::chrono::milliseconds patience)
      : server_(server),
        security_(security),
        word_(std::move(word)),
        patience_(patience),
        socket_(security.connect(net::start_connecting(coordination::resolve(server).front()),
                                 net::Stream::End::kCaller)) {}

  bool connect(Time deadline) override {
    net::send_at_once(socket_.stream().fd());
    socket_.open(kDirectByte, deadline);
    socket_.shake_hands(deadline);
    security_.check_name(socket_.stream(), server_.host());
    socket_.put({.kind = Frame::Kind::kHello}, word_);
    socket_.flush(deadline);
    FrameSocket::Incoming welcome;
    socket_.get(welcome, deadline);
    if (welcome.frame.kind == Frame::Kind::kError) throw error_in(welcome);
    if (welcome.frame.kind != Frame::Kind::kWelcome)
      fail(Code::kDataLoss, "the server does not say that its caller is welcome");
    socket_.watch(patience_);
    socket_.hear_refusals();
    return true;
  }

  void send(Message message, Time deadline) override { socket_.send(message, deadline); }

  void receive(const Link::Receiver& receiver, Time deadline) override {
    FrameSocket::Incoming head;
    socket_.get(head, deadline);
    if (head.frame.kind == Frame::Kind::kError) throw error_in(head);
    if (head.frame.kind != Frame::Kind::kMessage) fail(Code::kDataLoss, "a reply cannot be read");
    receiver.begin(head.text, head.frame.bytes);
    for (uint64_t left = head.frame.bytes; left > 0;) {
      const auto part = socket_.receive(receiver.room(), left, deadline);
      receiver.take(part.data(), part.size());
      left -= part.size();
    }
  }

  bool beat() override { return socket_.beat(); }

  void cancel() override { socket_.cancel(); }

 private:
  const Address server_;
  const coordination::Security& security_;
  const std::string word_;
  const std::chrono::milliseconds patience_;
  FrameSocket socket_;
};

}  // namespace

std::unique_ptr<Link> link_directly(const Address& server, const coordination::Security& security,
                                    std::string word, std::chrono::milliseconds patience) {
  return std::make_unique<Link>(
      std::make_unique<DirectCarrier>(server, security, std::move(word), patience));
}

}  // namespace cohort::parameter_server
