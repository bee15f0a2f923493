#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace cohort::net {

// Follows what a client of gRPC sends over a connection (RFC 9113, gRPC over HTTP/2), for the sizes
// that gRPC 1.51 itself looks at too late: it holds a whole message before it compares its length
// with the limit, and decodes a header block of any size, in quadratic time (CVE-2023-33953).
class Http2Sizes {
 public:
  struct Limits {
    size_t message_bytes;
    size_t messages_bytes;  // of all that have begun and not ended, as they are announced
    size_t header_bytes;    // of the frames of a header block, and of every other but of data
    size_t usual_bytes;     // of a message that is not long
    size_t first_bytes = SIZE_MAX;  // of the first message of a call
  };
  explicit Http2Sizes(Limits limits);

  // Takes what comes next. False where something of it is too large, or gRPC would not take it;
  // nothing can be taken after that. A first message alone that is longer than `first_bytes`
  // becomes an empty one, followed by what gRPC takes for no message and does not hold.
  bool accept(std::span<char> bytes);
  // Whether a long message has begun and not ended.
  bool in_long_message() const { return long_messages_ > 0; }

 private:
  // What has come of a message whose end has not.
  struct Message {
    std::array<unsigned char, 5> prefix;  // a flag, and the length
    size_t prefix_bytes = 0;
    size_t bytes = 0, missing = 0;
    bool is_first = false;    // of its call
    bool is_emptied = false;  // what is missing is not passed on
  };

  bool take_preface(std::span<char>& bytes);
  bool take_frame_header(std::span<char>& bytes);
  bool take_payload(std::span<char>& bytes);
  bool begin_frame();
  void end_frame();
  // Adds a message whose length is known; false where it is too large.
  bool add(const Message& message);
  void forget(uint32_t stream);
  bool take_data(std::span<char> data);

  uint8_t type() const { return frame_[3]; }
  uint8_t flags() const { return frame_[4]; }
  uint32_t stream() const;

  const Limits limits_;
  size_t preface_bytes_ = 0;
  std::array<unsigned char, 9> frame_{};  // its header
  size_t frame_bytes_ = 0;                // of that, which have come
  size_t payload_left_ = 0;
  size_t block_bytes_ = 0;
  uint32_t last_stream_ = 0;  // that has been opened: each has a higher number than those before
  // By stream: also those that are to begin a call.
  std::unordered_map<uint32_t, Message> messages_;
  size_t messages_bytes_ = 0, long_messages_ = 0;
};

}  // namespace cohort::net
