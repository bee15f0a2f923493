#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>

#include "core/base/error.h"
#include "strategies/cluster/net/stream.h"
#include "strategies/cluster/net/wake_up.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/patience.h"

namespace cohort::parameter_server {

// What client and server say to each other where they do without gRPC.
struct Frame {
  enum class Kind : uint32_t {
    kHello = 1,  // client: `text` is the word that the server gave it by gRPC
    kWelcome,    // server: to whom has said it
    kMessage,    // `text` is the header, `bytes` the size of the payload
    kError,  // ends the connection: code `number`; `text` is the message, then a line of the peer
    kBeat,   // server: it is at work; client: it is there. For FrameSocket alone

    // Between processes that share memory. kHello: the process is `number`, started at `bytes`.
    // kWelcome: the area has `bytes`, and is descriptor `number` of the server's process; `region`
    // is 1 where the client may lend memory too.
    kSegment,  // the next part of the payload: `bytes` from offset `number` of a region
    kReturn,   // the oldest `number` segments of the area that the other side has sent are free
    kRegion,   // memory of the sender's: descriptor `number` of its process, `bytes`; 0: no more
  };
  Kind kind = Kind::kError;
  uint32_t text_bytes = 0;  // set by FrameSocket
  uint32_t region = 0;      // 0: the area
  uint32_t unused = 0;
  uint64_t number = 0, bytes = 0;
  uint64_t sequence = 0;  // of a segment that is a value which may change: its guard's
};

// For a caller to say who it is, who has come without gRPC.
inline constexpr std::chrono::milliseconds kHelloTime{5000};

// Frames over a connection, and bytes between them. One thread at a time, but for cancel(). Errors
// of all calls: kDeadlineExceeded, kCancelled, kUnavailable when the other side has gone, and those
// of a handshake.
class FrameSocket {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Incoming {
    Frame frame;
    std::string text;
  };

  explicit FrameSocket(net::Stream stream);
  explicit FrameSocket(net::Descriptor socket) : FrameSocket(net::Stream(std::move(socket))) {}
  const net::Stream& stream() const { return stream_; }
  // Waits for a connection that has only begun to be made, and sends its first byte.
  void open(char first, Time deadline);
  // Before any frame, where the stream is one by TLS.
  void shake_hands(Time deadline);

  // To be sent with the next flush().
  void put(Frame frame, std::string_view text = {});
  void flush(Time deadline) { send_pieces({}, deadline); }
  // A message, and its payload behind it.
  void send(const Message& message, Time deadline);
  // The last words to a caller, who is given a moment to take them.
  void refuse(const Error& error);
  // The next frame. While it has not come, `wake`, where it is not null, is watched too: false when
  // that came first.
  bool get(Incoming& incoming, Time deadline, const net::WakeUp* wake = nullptr);
  // Of a caller, the frame that tells who it is: of a stranger, no text is kept that is longer than
  // a word needs (kResourceExhausted).
  Incoming get_greeting(Time deadline);
  // Some of the bytes that follow the last frame, of which there must be some: into `room`, or,
  // where that is empty, into memory that is good until the next call.
  std::span<const char> receive(std::span<char> room, size_t most, Time deadline);
  // Waits for `wake`; throws when the other side hangs up. Another thread may beat() meanwhile.
  void wait(const net::WakeUp& wake);
  // Tells, without waiting, that this side is there, and leaves what has come as it is. Not while
  // a message is being sent. False when the connection has ended.
  bool beat();
  static constexpr std::chrono::milliseconds kBeat{250};
  // From now on, waiting for the other side is kUnavailable when that, which counts up here at
  // least every kBeat, has not done so for as long as `patience`.
  void watch(const uint64_t* pulse, std::chrono::milliseconds patience = kUsualPatience) {
    pulse_ = pulse;
    patience_ = patience;
  }
  // The same when nothing comes from it or goes to it for so long, not even a beat.
  void watch(std::chrono::milliseconds patience = kUsualPatience) { watch(&moved_, patience); }
  // Of a caller, to whom nothing is said while it sends but beats and why the request is refused:
  // from now on it takes the beats meanwhile, and throws the refusal.
  void hear_refusals() { hears_refusals_ = true; }
  // Ends all waiting, now and later.
  void cancel();

 private:
  bool parse(Incoming& incoming);
  // Takes what has come; false when that is nothing.
  bool fill();
  // Sends what was put, then these bytes.
  void send_pieces(std::span<const Piece> payload, Time deadline);
  // Reads into `pieces` as many bytes as have come, 0 when none have.
  size_t read(std::span<const iovec> pieces);
  size_t write(std::span<const iovec> pieces);
  // How many bytes were sent; -1 when the connection has ended.
  ssize_t try_write(std::span<const iovec> pieces);
  // What the other side said last is why.
  [[noreturn]] void fail_to_send();
  // Lets go of all else that has come.
  void throw_refusal();
  bool fill_awake();
  // What is left until then; less than 0: no end. kDeadlineExceeded.
  static std::chrono::milliseconds require_time(Time deadline);
  // Whether `wake` was signalled.
  bool poll_for(short events, Time deadline, const net::WakeUp* wake);
  enum class Polled { kNothing, kSomething, kWoken };
  Polled poll_once(short events, std::chrono::milliseconds limit, const net::WakeUp* wake);
  [[noreturn]] void gone() const;
  // A beat has passed without a word from the other side.
  void look_for_pulse();

  net::Stream stream_;
  std::string out_;
  std::string in_;
  size_t used_ = 0;     // of in_
  uint64_t moved_ = 0;  // how often something went out or came in
  const uint64_t* pulse_ = nullptr;
  std::chrono::milliseconds patience_ = kUsualPatience;
  uint64_t last_pulse_ = 0;
  int beats_missed_ = 0;
  bool hears_refusals_ = false;
  bool awaits_greeting_ = false;
  std::atomic<bool> cancelled_ = false;
};

// What a kError says. Foreign numbers become kUnknown.
Error error_in(const FrameSocket::Incoming& incoming);

}  // namespace cohort::parameter_server
