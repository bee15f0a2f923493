#include "strategies/cluster/net/http2_sizes.h"

#include <algorithm>
#include <span>

namespace cohort::net {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
enum FrameType : uint8_t { kData = 0, kHeaders = 1, kReset = 3, kContinuation = 9 };
constexpr uint8_t kEndStream = 0x1, kPadded = 0x8;
// Streams with a message half sent. Those that the server has ended in the middle of one count
// among them: who has had so many has to connect again.
constexpr size_t kMostMessages = 1024;

size_t number(std::span<const unsigned char> big_endian) {
  size_t value = 0;
  for (const unsigned char byte : big_endian) value = value << 8 | byte;
  return value;
}

// Moves bytes from the front of `bytes` to `to` at `got`, until that is full; whether it is.
template <size_t size>
bool fill(std::array<unsigned char, size>& to, size_t& got, std::string_view& bytes) {
  const size_t part = std::min(size - got, bytes.size());
  std::copy_n(bytes.begin(), part, to.begin() + static_cast<std::ptrdiff_t>(got));
  bytes.remove_prefix(part);
  got += part;
  return got == size;
}

}  // namespace

Http2Sizes::Http2Sizes(Limits limits) : limits_(limits) {}

uint32_t Http2Sizes::stream() const {
  return static_cast<uint32_t>(number(std::span(frame_).last<4>())) & 0x7fffffff;
}

bool Http2Sizes::accept(std::string_view bytes) {
  while (!bytes.empty()) {
    const bool fits = preface_bytes_ < kPreface.size() ? take_preface(bytes)
                      : frame_bytes_ < frame_.size()   ? take_frame_header(bytes)
                                                       : take_payload(bytes);
    if (!fits) return false;
  }
  return true;
}

bool Http2Sizes::take_preface(std::string_view& bytes) {
  const std::string_view part = bytes.substr(0, kPreface.size() - preface_bytes_);
  if (part != kPreface.substr(preface_bytes_, part.size())) return false;
  preface_bytes_ += part.size();
  bytes.remove_prefix(part.size());
  return true;
}

bool Http2Sizes::take_frame_header(std::string_view& bytes) {
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
  }
  if (type() == kHeaders || type() == kContinuation) block_bytes_ += frame_.size() + payload_left_;
  return std::max(payload_left_, block_bytes_) <= limits_.header_bytes;
}

bool Http2Sizes::take_payload(std::string_view& bytes) {
  const std::string_view part = bytes.substr(0, payload_left_);
  if (type() == kData && !take_data(part)) return false;
  payload_left_ -= part.size();
  bytes.remove_prefix(part.size());
  if (payload_left_ == 0) end_frame();
  return true;
}

void Http2Sizes::end_frame() {
  if (type() == kReset || (type() == kData && (flags() & kEndStream) != 0)) forget(stream());
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

bool Http2Sizes::take_data(std::string_view data) {
  while (!data.empty()) {
    Message& message = messages_[stream()];
    if (messages_.size() > kMostMessages) return false;
    if (message.prefix_bytes < message.prefix.size()) {
      if (!fill(message.prefix, message.prefix_bytes, data)) return true;
      message.bytes = message.missing = number(std::span(message.prefix).last<4>());
      if (!add(message)) return false;
    }
    const size_t part = std::min(message.missing, data.size());
    message.missing -= part;
    data.remove_prefix(part);
    if (message.missing == 0) forget(stream());
  }
  return true;
}

}  // namespace cohort::net
