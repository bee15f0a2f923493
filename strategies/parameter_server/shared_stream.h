#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "strategies/collective/host/shared_region.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/frame_socket.h"
#include "strategies/parameter_server/segments.h"

namespace cohort::parameter_server {

// Of the memory that a client and a server share. A payload of any size goes through it.
inline constexpr size_t kAreaBytes = 16 << 20;
// With what lies behind it: a page with the server's pulse.
inline constexpr size_t kRegionBytes = kAreaBytes + 4096;
// What lies in one segment at most; larger pieces are cut.
inline constexpr size_t kMaxSegmentBytes = kAreaBytes / 4;

// Messages between two processes of one host, in turns: one side sends all of a request, then the
// other all of its reply. Headers go through a socket, payloads through an area that both have
// mapped, where the side whose turn it is decides what lies where. The other side never trusts
// that: a segment is inside the area or the connection ends, and what is in it may change at any
// time. One thread at a time, but for cancel().
class SharedStream {
 public:
  using Time = FrameSocket::Time;
  struct Head {
    std::string header;
    uint64_t payload_bytes = 0;
  };

  explicit SharedStream(net::Descriptor socket);
  // Before anything else but socket().
  void attach(SharedRegion region);
  // Counts up while the server lives, whatever the thread of this connection is at.
  uint64_t* pulse() const { return reinterpret_cast<uint64_t*>(area_->data() + kAreaBytes); }
  FrameSocket& socket() { return socket_; }

  // Sends a message. Pieces that lie in memory from take() are not copied.
  void send(const Message& message, Time deadline);
  // Memory in the area for some of the next message that is sent, to be used in the order in which
  // it was taken. Waits until there is some, unless some has been taken for that message already:
  // then, and for more than kMaxSegmentBytes, it is null, and there is no more for that message.
  std::shared_ptr<Buffer> take(size_t bytes, Time deadline);

  // The next message's header, then its payload in parts.
  Head receive_head(Time deadline);
  // kInvalidArgument for a part that is empty, beyond `left` or not in the area. Memory that is
  // kept may change until the next turn, and is lent until then.
  std::shared_ptr<Buffer> receive_segment(uint64_t left, Time deadline);

  // For the side that waits for something else in between: sleeps until signalled, by wake_up().
  // Throws when the other side hangs up.
  void wait_until(const std::function<bool()>& ready);
  std::shared_ptr<net::WakeUp> wake_up() const { return wake_; }
  void cancel() { socket_.cancel(); }

 private:
  void begin_turn(bool sending);
  void copy(const Piece& piece, Time deadline);
  size_t take_offset(size_t bytes, Time deadline);
  void put_segment(size_t offset, size_t bytes, Time deadline);
  // Tells the other side what it can use again.
  void give_back(Time deadline);
  FrameSocket::Incoming next(Time deadline);
  bool in_area(const Piece& piece) const;

  FrameSocket socket_;
  const std::shared_ptr<net::WakeUp> wake_;
  std::shared_ptr<SharedRegion> area_;
  SentSegments sent_;
  ReceivedSegments received_;
  bool sending_ = false;
  size_t unsaid_ = 0;  // bytes of segments whose frames wait to be flushed
  // Of memory for the next message: whether there is some, and whether there was no more of it.
  bool has_taken_ = false, has_refused_ = false;
};

}  // namespace cohort::parameter_server
