#include "strategies/parameter_server/shared_stream.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

// Pieces that are cut are cut into such, and so much is said at once: the other side works on one
// while the next one is copied.
constexpr size_t kPartBytes = 512 << 10;
constexpr size_t kNewsBytes = kAreaBytes / 8;

}  // namespace

SharedStream::SharedStream(net::Descriptor socket)
    : socket_(std::move(socket)),
      wake_(std::make_shared<net::WakeUp>()),
      sent_(kAreaBytes),
      received_(kNewsBytes, [wake = wake_] { wake->signal(); }) {}

void SharedStream::attach(SharedRegion region) {
  COHORT_CHECK(region.bytes() == kRegionBytes);
  area_ = std::make_shared<SharedRegion>(std::move(region));
}

void SharedStream::begin_turn(bool sending) {
  if (std::exchange(sending_, sending) == sending || !sending) return;
  // The other side has answered: it has no use for what was sent to it, nor for what it sent.
  sent_.clear();
  received_.clear();
}

FrameSocket::Incoming SharedStream::next(Time deadline) {
  FrameSocket::Incoming incoming;
  for (;;) {
    socket_.get(incoming, deadline);
    if (incoming.frame.kind == Frame::Kind::kError) throw error_in(incoming);
    if (incoming.frame.kind != Frame::Kind::kReturn) return incoming;
    sent_.give_back(incoming.frame.number);
  }
}

size_t SharedStream::take_offset(size_t bytes, Time deadline) {
  for (;;) {
    if (const auto offset = sent_.take(bytes)) return *offset;
    socket_.flush(deadline);
    unsaid_ = 0;
    FrameSocket::Incoming incoming;
    socket_.get(incoming, deadline);
    if (incoming.frame.kind == Frame::Kind::kError) throw error_in(incoming);
    if (incoming.frame.kind != Frame::Kind::kReturn) invalid("the other side speaks out of turn");
    sent_.give_back(incoming.frame.number);
  }
}

std::shared_ptr<Buffer> SharedStream::take(size_t bytes, Time deadline) {
  begin_turn(true);
  std::optional<size_t> offset;
  if (bytes > 0 && bytes <= kMaxSegmentBytes && !has_refused_)
    offset = has_taken_ ? sent_.take(bytes) : take_offset(bytes, deadline);
  (offset ? has_taken_ : has_refused_) = true;
  if (!offset) return nullptr;
  // What lies there when it is sent counts: nobody has to be told that it is let go of.
  return {new Buffer{area_->data() + *offset, bytes},
          [area = area_](Buffer* buffer) { delete buffer; }};
}

void SharedStream::put_segment(size_t offset, size_t bytes, Time deadline) {
  socket_.put({.kind = Frame::Kind::kSegment, .number = offset, .bytes = bytes});
  unsaid_ += bytes;
  if (unsaid_ < kPartBytes / 2) return;
  socket_.flush(deadline);
  unsaid_ = 0;
}

bool SharedStream::in_area(const Piece& piece) const {
  return std::greater_equal<>()(piece.data, area_->data()) &&
         std::less<>()(piece.data, area_->data() + kAreaBytes);
}

void SharedStream::copy(const Piece& piece, Time deadline) {
  const size_t part = piece.bytes <= kMaxSegmentBytes ? piece.bytes : kPartBytes;
  for (size_t at = 0; at < piece.bytes; at += part) {
    const size_t bytes = std::min(part, piece.bytes - at);
    const size_t offset = take_offset(bytes, deadline);
    std::memcpy(area_->data() + offset, piece.data + at, bytes);
    put_segment(offset, bytes, deadline);
  }
}

void SharedStream::send(const Message& message, Time deadline) {
  begin_turn(true);
  uint64_t total = 0;
  for (const Piece& piece : message.payload) total += piece.bytes;
  socket_.put({.kind = Frame::Kind::kMessage, .bytes = total}, message.header);
  for (const Piece& piece : message.payload) {
    if (in_area(piece))
      put_segment(static_cast<size_t>(piece.data - area_->data()), piece.bytes, deadline);
    else
      copy(piece, deadline);
  }
  has_taken_ = has_refused_ = false;
  socket_.flush(deadline);
  unsaid_ = 0;
}

SharedStream::Head SharedStream::receive_head(Time deadline) {
  begin_turn(false);
  FrameSocket::Incoming incoming = next(deadline);
  if (incoming.frame.kind != Frame::Kind::kMessage) invalid("a message was expected");
  area_->close_descriptor();  // the other side has mapped it
  return {std::move(incoming.text), incoming.frame.bytes};
}

std::shared_ptr<Buffer> SharedStream::receive_segment(uint64_t left, Time deadline) {
  FrameSocket::Incoming incoming;
  do {
    give_back(deadline);
  } while (!socket_.get(incoming, deadline, wake_.get()));
  if (incoming.frame.kind == Frame::Kind::kError) throw error_in(incoming);
  const auto [kind, text, offset, bytes] = incoming.frame;
  if (kind != Frame::Kind::kSegment) invalid("a message was expected to go on");
  if (bytes == 0 || bytes > left || offset > kAreaBytes || bytes > kAreaBytes - offset)
    invalid("a message has ", bytes, " bytes at ", offset, " of an area of ", kAreaBytes, ", and ",
            left, " to come");
  return received_.add(area_, area_->data() + offset, bytes);
}

void SharedStream::give_back(Time deadline) {
  const uint64_t due = received_.take_due();
  if (due == 0) return;
  socket_.put({.kind = Frame::Kind::kReturn, .number = due});
  socket_.flush(deadline);
}

void SharedStream::wait_until(const std::function<bool()>& ready) {
  for (;;) {
    give_back(Time::max());
    if (ready()) return;
    socket_.wait(*wake_);
  }
}

}  // namespace cohort::parameter_server
