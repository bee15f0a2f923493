#include "strategies/parameter_server/local_link.h"

#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/shared_stream.h"

namespace cohort::parameter_server {
namespace {

class LocalCarrier final : public Link::Carrier {
 public:
  explicit LocalCarrier(const LocalOffer& offer)
      : offer_(offer), stream_(connect_locally(offer.socket)) {}

  bool connect(Time deadline) override {
    FrameSocket& socket = stream_.socket();
    socket.put({.kind = Frame::Kind::kHello}, offer_.word);
    socket.flush(deadline);
    FrameSocket::Incoming welcome;
    socket.get(welcome, deadline);
    if (welcome.frame.kind == Frame::Kind::kError) throw error_in(welcome);
    if (welcome.frame.kind != Frame::Kind::kWelcome || welcome.frame.bytes != kRegionBytes ||
        welcome.frame.number > INT32_MAX)
      fail(Code::kDataLoss, "the server offers memory of another kind");
    stream_.attach(SharedRegion::open(offer_.server, static_cast<int>(welcome.frame.number),
                                      welcome.frame.bytes));
    socket.watch(stream_.pulse());
    return true;
  }

  void send(Message message, Time deadline) override { stream_.send(message, deadline); }

  void receive(const Link::Receiver& receiver, Time deadline) override {
    const SharedStream::Head head = stream_.receive_head(deadline);
    receiver.begin(head.header, head.payload_bytes);
    for (uint64_t left = head.payload_bytes; left > 0;) {
      const auto segment = stream_.receive_segment(left, deadline);
      receiver.take(static_cast<const char*>(segment->data), segment->bytes);
      left -= segment->bytes;
    }
  }

  void cancel() override { stream_.cancel(); }

 private:
  const LocalOffer offer_;
  SharedStream stream_;
};

}  // namespace

std::unique_ptr<Link> link_locally(const LocalOffer& offer) {
  return std::make_unique<Link>(std::make_unique<LocalCarrier>(offer));
}

}  // namespace cohort::parameter_server
