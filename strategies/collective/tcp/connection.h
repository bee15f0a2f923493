#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>
#include <vector>

#include "strategies/cluster/net/stream.h"
#include "strategies/collective/tcp/frame.h"

namespace cohort::tcp {

class Control;

// Memory in pieces that is sent or filled as if it were one.
class Memory {
 public:
  Memory() = default;
  Memory(const void* data, int64_t bytes) { add(data, bytes); }
  void clear() { pieces_.clear(), bytes_ = 0; }
  // Null: what is received there is thrown away.
  void add(const void* data, int64_t bytes);
  int64_t bytes() const { return bytes_; }
  // Appends what lies in [begin, end), as far as `limit` pieces go; `scratch` of kScratch bytes is
  // for null pieces.
  void find(int64_t begin, int64_t end, char* scratch, size_t limit,
            std::vector<iovec>& found) const;

  static constexpr size_t kScratch = 65536;

 private:
  struct Piece {
    char* data;
    int64_t begin, end;
  };
  std::vector<Piece> pieces_;
  int64_t bytes_ = 0;
};

// Something that goes to one peer, in frames. The memory must stay where it is.
struct Stream {
  FrameHeader header;  // of all frames; index counts up from this one's
  const Memory* memory = nullptr;
  int64_t next = 0, end = 0;  // in the memory
  int64_t ready = 0;          // what may be sent yet
  int64_t chunk = kMaxPayload;
  bool empty_frame = false;  // sends a frame even if there is nothing in it
};

// Where a payload goes.
struct Destination {
  const Memory* memory = nullptr;
  int64_t begin = 0;
};

// Who gets the frames that arrive.
class Receiver {
 public:
  virtual ~Receiver() = default;
  // A frame has come, its payload not yet. False leaves it, and what is behind it, for later.
  virtual bool accept(int peer, const FrameHeader& header, Destination& destination) = 0;
  // Its payload is there and right.
  virtual void arrived(int peer, const FrameHeader& header) = 0;
};

// Frames in both directions between this rank and a peer, without waiting. One thread at a time.
class Connection {
 public:
  Connection(int peer, net::Stream link, bool check_payloads);

  int peer() const { return peer_; }
  int fd() const { return link_.fd(); }

  // Streams are sent in the order of their places; a stream at a lower place that becomes ready
  // comes first at the next frame.
  static constexpr size_t kPlaces = 3;
  Stream& stream(size_t place) { return streams_[place]; }
  bool has_output() const;
  // Whether some of a stream of this memory is still to be sent.
  bool is_sending(const Memory& memory) const;
  void forget_output();

  // Moves up to about one chunk; whether anything was moved. `failure` tells why nothing ever will
  // be again.
  bool send_some();
  bool receive_some(Receiver& receiver);
  // A frame waits for a later time.
  bool is_parked() const { return parked_; }
  void unpark() { parked_ = false; }
  bool is_open() const { return failure_.empty(); }
  // "has closed its connection".
  const std::string& failure() const { return failure_; }
  bool is_corrupt() const { return corrupt_; }

 private:
  bool cut_frame();
  bool take_header(Receiver& receiver);
  // How many bytes have come; 0 where none have, or none ever will.
  size_t read(std::span<const iovec> pieces);
  // The same of the payload, to where pieces_ says then.
  size_t read_payload();
  // By so many bytes of the payload, which are where pieces_ says.
  void extend_check(size_t bytes);
  void fail_with(int error);

  const int peer_;
  net::Stream link_;
  const bool check_payloads_;
  std::string failure_;
  bool corrupt_ = false;

  Stream streams_[kPlaces];
  FrameHeader sent_header_;
  const Memory* sent_memory_ = nullptr;
  int64_t sent_begin_ = 0;
  size_t sent_ = 0, to_send_ = 0;  // of header and payload of the frame being sent

  std::vector<char> buffer_;  // what came with the last payload
  size_t buffered_ = 0, taken_ = 0;
  bool in_frame_ = false, parked_ = false;
  FrameHeader header_;
  Destination destination_;
  int64_t got_ = 0;  // of the payload
  uint32_t check_ = 0;
  std::vector<iovec> pieces_;
  std::vector<char> scratch_;
};

// To the peers that `links` lead to, whose ends `control` watches from now on; null for the others.
std::vector<std::unique_ptr<Connection>> make_connections(Control& control,
                                                          std::vector<net::Stream> links,
                                                          bool check_payloads);

}  // namespace cohort::tcp
