#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "strategies/cluster/net/descriptor.h"
#include "strategies/cluster/net/wake_up.h"

namespace cohort::parameter_server {

// What two processes of one host say to each other beside the memory that they share. It goes
// through a socket, so that nobody can change it while it is looked at.
struct Frame {
  enum class Kind : uint32_t {
    kHello = 1,  // client: `text` is the word that the server gave it by gRPC; the process
                 // `number` that was started at `bytes`
    kWelcome,    // server: the area has `bytes`, and is descriptor `number` of its process;
                 // `region` is 1 where the client may lend memory too
    kMessage,    // `text` is the header, `bytes` the size of the payload
    kSegment,    // the next part of the payload: `bytes` from offset `number` of a region
    kReturn,     // the oldest `number` segments of the area that the other side has sent are free
    kRegion,     // memory of the sender's: descriptor `number` of its process, `bytes`; 0: no more
    kError,  // ends the connection: code `number`; `text` is the message, then a line of the peer
  };
  Kind kind = Kind::kError;
  uint32_t text_bytes = 0;  // set by FrameSocket
  uint32_t region = 0;      // 0: the area
  uint32_t unused = 0;
  uint64_t number = 0, bytes = 0;
  uint64_t sequence = 0;  // of a segment that is a value which may change: its guard's
};

// Frames over a connected Unix socket. One thread at a time, but for cancel(). Errors of all calls:
// kDeadlineExceeded, kCancelled, kUnavailable when the other side has gone.
class FrameSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Incoming {
    Frame frame;
    std::string text;
  };

  // Owns the socket.
  explicit FrameSocket(net::Descriptor socket);
  int fd() const { return socket_.get(); }

  // To be sent with the next flush().
  void put(Frame frame, std::string_view text = {});
  void flush(Time deadline);
  // The next frame. While it has not come, `wake`, where it is not null, is watched too: false when
  // that came first.
  bool get(Incoming& incoming, Time deadline, const net::WakeUp* wake = nullptr);
  // Waits for `wake`; throws when the other side hangs up.
  void wait(const net::WakeUp& wake);
  // From now on, waiting with a deadline is kUnavailable when the other side, which counts up here
  // at least every kBeat, has not done so for kDead.
  void watch(const uint64_t* pulse) { pulse_ = pulse; }
  static constexpr std::chrono::milliseconds kBeat{250}, kDead{3000};
  // Ends all waiting, now and later.
  void cancel();

 private:
  bool parse(Incoming& incoming);
  // Takes what has come; false when that is nothing.
  bool fill();
  bool fill_awake();
  // Whether `wake` was signalled.
  bool poll_for(short events, Time deadline, const net::WakeUp* wake);
  [[noreturn]] void gone() const;
  // A beat has passed without a word from the other side.
  void look_for_pulse();

  net::Descriptor socket_;
  std::string out_;
  std::string in_;
  size_t used_ = 0;  // of in_
  const uint64_t* pulse_ = nullptr;
  uint64_t last_pulse_ = 0;
  int beats_missed_ = 0;
  std::atomic<bool> cancelled_ = false;
};

// As kError says it, and back. Foreign numbers become kUnknown.
Frame error_frame(const Error& error, std::string& text);
Error error_in(const FrameSocket::Incoming& incoming);

}  // namespace cohort::parameter_server
