#include "strategies/cluster/net/http2_sizes.h"

#include <algorithm>
#include <span>
#include <string_view>

namespace cohort::net {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum FrameType : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kContinuation = 9 };
constexpr uint8_t kEndStream = 0x1, kPadded = 0x8;
// Streams with a message half sent, or none yet. Those that the server has ended in the middle of
// one count among them: who has had so many has to connect again.
constexpr size_t kMostMessages = 1024;
// Begins no message: the flags that there are are 0 and 1.
constexpr char kNoMessage = '\x7f';

size_t number(std::span<const unsigned char> big_endian) {
  size_t value = 0;
  for (const unsigned char byte : big_endian) value = value << 8 | byte;
  return value;
}

// Moves bytes from the front of `bytes` to `to` at `got`, until that is full; whether it is.
template <size_t size>
bool fill(std::array<unsigned char, size>& to, size_t& got, std::span<char>& bytes) {
  const size_t part = std::min(size - got, bytes.size());
  std::copy_n(bytes.begin(), part, to.begin() + static_cast<std::ptrdiff_t>(got));
  bytes = bytes.subspan(part);
  got += part;
  return got == size;
}

}  // namespace

Http2Sizes::Http2Sizes(Limits limits) : limits_(limits) {}

uint32_t Http2Sizes::stream() const {
  return static_cast<uint32_t>(number(std::span(frame_).last<4>())) & 0x7fffffff;
}

bool Http2Sizes::accept(std::span<char> bytes) {
  while (!bytes.empty()) {
    const bool fits = preface_bytes_ < kPreface.size() ? take_preface(bytes)
                      : frame_bytes_ < frame_.size()   ? take_frame_header(bytes)
                                                       : take_payload(bytes);
    if (!fits) return false;
  }
  return true;
}

bool Http2Sizes::take_preface(std::span<char>& bytes) {
  const size_t part = std::min(bytes.size(), kPreface.size() - preface_bytes_);
  if (std::string_view(bytes.data(), part) != kPreface.substr(preface_bytes_, part)) return false;
  preface_bytes_ += part;
  bytes = bytes.subspan(part);
  return true;
}

bool Http2Sizes::take_frame_header(std::span<char>& bytes) {
  if (!fill(frame_, frame_bytes_, bytes)) return true;
  payload_left_ = number(std::span(frame_).first<3>());
  if (!begin_frame()) return false;
  if (payload_left_ == 0) end_frame();
  return true;
}

bool Http2Sizes::begin_frame() {
  // gRPC does not take padded data, either, and passes over data of a stream that is not open.
  if (type() == kData) return (flags() & kPadded) == 0 && stream() != 0 && stream() <= last_stream_;
  if (type() == kHeaders) {
    // A second block, which clients of gRPC do not send, could end a stream here and not there.
    if (stream() <= last_stream_) return false;
    last_stream_ = stream();
    block_bytes_ = 0;
    messages_[stream()].is_first = true;
    if (messages_.size() > kMostMessages) return false;
  }
  if (type() == kHeaders || type() == kContinuation) block_bytes_ += frame_.size() + payload_left_;
  return std::max(payload_left_, block_bytes_) <= limits_.header_bytes;
}

bool Http2Sizes::take_payload(std::span<char>& bytes) {
  const std::span<char> part = bytes.first(std::min(bytes.size(), payload_left_));
  if (type() == kData && !take_data(part)) return false;
  payload_left_ -= part.size();
  bytes = bytes.subspan(part.size());
  if (payload_left_ == 0) end_frame();
  return true;
}

void Http2Sizes::end_frame() {
  const bool may_end = type() == kData || type() == kHeaders;
  if (type() == kReset || (may_end && (flags() & kEndStream) != 0)) forget(stream());
  frame_bytes_ = 0;
}

bool Http2Sizes::add(const Message& message) {
  messages_bytes_ += message.bytes;
  if (message.bytes > limits_.usual_bytes) ++long_messages_;
  return message.bytes <= limits_.message_bytes && messages_bytes_ <= limits_.messages_bytes;
}

void Http2Sizes::forget(uint32_t stream) {
  const auto message = messages_.find(stream);
  if (message == messages_.end()) return;
  messages_bytes_ -= message->second.bytes;
  if (message->second.bytes > limits_.usual_bytes) --long_messages_;
  messages_.erase(message);
}

bool Http2Sizes::take_data(std::span<char> data) {
  while (!data.empty()) {
    Message& message = messages_[stream()];
    if (messages_.size() > kMostMessages) return false;
    if (message.prefix_bytes < message.prefix.size()) {
      const std::span<char> prefix = data.first(std::min(data.size(), message.prefix.size()));
      const bool is_whole = message.prefix_bytes == 0;
      if (!fill(message.prefix, message.prefix_bytes, data)) return true;
      message.bytes = message.missing = number(std::span(message.prefix).last<4>());
      if (!add(message)) return false;
      if (message.is_first && message.bytes > limits_.first_bytes) {
        if (!is_whole) return false;  // some of it has gone on
        std::ranges::fill(prefix, '\0');
        message.is_emptied = true;
      }
    }
    const size_t part = std::min(message.missing, data.size());
    if (message.is_emptied) std::ranges::fill(data.first(part), kNoMessage);
    message.missing -= part;
    data = data.subspan(part);
    if (message.missing == 0) forget(stream());
  }
  return true;
}

}  // namespace cohort::net
