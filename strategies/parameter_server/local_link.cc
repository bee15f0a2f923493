#include "strategies/parameter_server/local_link.h"

#include <chrono>
#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/local_socket.h"
#include "strategies/parameter_server/shared_stream.h"
#include "strategies/parameter_server/value_memory.h"

namespace cohort::parameter_server {
namespace {

class LocalCarrier final : public Link::Carrier {
 public:
  LocalCarrier(const LocalOffer& offer, std::chrono::milliseconds patience)
      : offer_(offer), patience_(patience), stream_(connect_locally(offer.socket)) {}

  bool connect(Time deadline) override {
    FrameSocket& socket = stream_.socket();
    const ProcessIdentity self = this_process();
    socket.put({.kind = Frame::Kind::kHello,
                .number = static_cast<uint64_t>(self.pid),
                .bytes = self.start_time},
               offer_.word);
    socket.flush(deadline);
    FrameSocket::Incoming welcome;
    socket.get(welcome, deadline);
    if (welcome.frame.kind == Frame::Kind::kError) throw error_in(welcome);
    if (welcome.frame.kind != Frame::Kind::kWelcome || welcome.frame.bytes != kRegionBytes ||
        welcome.frame.number > INT32_MAX)
      fail(Code::kDataLoss, "the server offers memory of another kind");
    stream_.attach(SharedRegion::open(offer_.server, static_cast<int>(welcome.frame.number),
                                      welcome.frame.bytes),
                   offer_.server, welcome.frame.region == 1);
    socket.watch(stream_.pulse(), patience_);
    return true;
  }

  void send(Message message, Time deadline) override { stream_.send(message, deadline); }

  void receive(const Link::Receiver& receiver, Time deadline) override {
    const SharedStream::Head head = stream_.receive_head(deadline);
    receiver.begin(head.header, head.payload_bytes);
    auto last_beat = std::chrono::steady_clock::now();
    for (uint64_t left = head.payload_bytes; left > 0;) {
      // What is lent is copied without a word to the server.
      if (const auto now = std::chrono::steady_clock::now(); now - last_beat > FrameSocket::kBeat) {
        stream_.socket().beat();
        last_beat = now;
      }
      const auto [memory, sequence] = stream_.receive_segment(left, deadline);
      const auto* data = static_cast<const char*>(memory->data);
      receiver.take(data, memory->bytes);
      if (sequence != 0 && !guard_of(data).still(sequence)) receiver.changed();
      left -= memory->bytes;
    }
  }

  bool beat() override { return stream_.socket().beat(); }

  void cancel() override { stream_.cancel(); }

 private:
  const LocalOffer offer_;
  const std::chrono::milliseconds patience_;
  SharedStream stream_;
};

}  // namespace

std::unique_ptr<Link> link_locally(const LocalOffer& offer, std::chrono::milliseconds patience) {
  return std::make_unique<Link>(std::make_unique<LocalCarrier>(offer, patience));
}

}  // namespace cohort::parameter_server
