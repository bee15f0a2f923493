#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "strategies/collective/host/shared_region.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/frame_socket.h"
#include "strategies/parameter_server/lent_memory.h"
#include "strategies/parameter_server/segments.h"

namespace cohort::parameter_server {

// Of the memory that a client and a server share. A payload of any size goes through it.
inline constexpr size_t kAreaBytes = 16 << 20;
// With what lies behind it: a page with the server's pulse, and whether it reads no more.
inline constexpr size_t kRegionBytes = kAreaBytes + 4096;
// What lies in one segment at most; larger pieces are cut.
inline constexpr size_t kMaxSegmentBytes = kAreaBytes / 4;

// Messages between two processes of one host, in turns: one side sends all of a request, then the
// other all of its reply. Headers go through a socket, payloads through an area that both have
// mapped, where the side whose turn it is decides what lies where; but what lies in memory that the
// other side can map too (allocate_shared_buffer) is read there. Nobody trusts the other side: a
// segment is inside the area or a region or the connection ends, and what is in it may change at
// any time. One thread at a time, but for cancel().
class SharedStream {
 public:
  using Time = FrameSocket::Time;
  struct Head {
    std::string header;
    uint64_t payload_bytes = 0;
  };

  explicit SharedStream(net::Descriptor socket);
  // What was lent for a request that has no answer is kept for as long as it may be read.
  ~SharedStream();
  // Before anything else but socket(): the area, who the other side is, and whether that can map
  // memory of this process.
  void attach(SharedRegion area, const ProcessIdentity& other, bool lends);
  // Counts up while the server lives, whatever the thread of this connection is at.
  uint64_t* pulse() const { return reinterpret_cast<uint64_t*>(area_->data() + kAreaBytes); }
  // Of the server, when nothing of the client's is read any more.
  void end_reading();
  FrameSocket& socket() { return socket_; }

  // Sends a message. Pieces that lie in memory from take(), or where the other side can map it, are
  // not copied: these must stay as they are until the other side's next message.
  void send(const Message& message, Time deadline);
  // Memory in the area for some of the next message that is sent, to be used in the order in which
  // it was taken. Waits until there is some, unless some has been taken for that message already:
  // then, and for more than kMaxSegmentBytes, it is null, and there is no more for that message.
  std::shared_ptr<Buffer> take(size_t bytes, Time deadline);

  // The next message's header, then its payload in parts.
  Head receive_head(Time deadline);
  // kInvalidArgument for a part that is empty, beyond `left` or not in the area or a region. Memory
  // that is kept may change until the next turn, and is lent until then. `sequence` as a Piece's.
  struct Segment {
    std::shared_ptr<Buffer> memory;
    uint64_t sequence = 0;
  };
  Segment receive_segment(uint64_t left, Time deadline);

  // For the side that waits for something else in between: sleeps until signalled, by wake_up().
  // Throws when the other side hangs up.
  void wait_until(const std::function<bool()>& ready);
  std::shared_ptr<net::WakeUp> wake_up() const { return wake_; }
  void cancel() { socket_.cancel(); }

 private:
  void begin_turn(bool sending);
  void copy(const Piece& piece, Time deadline);
  bool lend(const Piece& piece, Time deadline);
  size_t take_offset(size_t bytes, Time deadline);
  static uint64_t* ended_reading(const SharedRegion& area);
  void put_segment(Frame segment, Time deadline);
  // Tells the other side what it can use again.
  void give_back(Time deadline);
  FrameSocket::Incoming next(Time deadline);
  bool in_area(const Piece& piece) const;

  FrameSocket socket_;
  const std::shared_ptr<net::WakeUp> wake_;
  std::shared_ptr<SharedRegion> area_;
  ProcessIdentity other_;
  bool lends_ = false;
  SentSegments sent_;
  ReceivedSegments received_;
  LentRegions lent_;
  BorrowedRegions borrowed_;
  std::vector<std::shared_ptr<const void>> unanswered_;  // whose memory the other side may read
  bool sending_ = false;
  size_t unsaid_ = 0;  // bytes of segments whose frames wait to be flushed
  // Of memory for the next message: whether there is some, and whether there was no more of it.
  bool has_taken_ = false, has_refused_ = false;
};

}  // namespace cohort::parameter_server
