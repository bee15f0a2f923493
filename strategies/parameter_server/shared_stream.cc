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

SharedStream::~SharedStream() {
  if (unanswered_.empty()) return;
  const auto reads_no_more = [area = area_] {
    return __atomic_load_n(ended_reading(*area), __ATOMIC_ACQUIRE) != 0;
  };
  keep_lent(other_, reads_no_more, std::move(unanswered_));
}

uint64_t* SharedStream::ended_reading(const SharedRegion& area) {
  return reinterpret_cast<uint64_t*>(area.data() + kAreaBytes) + 1;
}

void SharedStream::end_reading() {
  borrowed_.wait_until_returned();
  if (area_) __atomic_store_n(ended_reading(*area_), 1, __ATOMIC_RELEASE);
}

void SharedStream::attach(SharedRegion area, const ProcessIdentity& other, bool lends) {
  COHORT_CHECK(area.bytes() == kRegionBytes);
  area_ = std::make_shared<SharedRegion>(std::move(area));
  other_ = other;
  lends_ = lends;
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

void SharedStream::put_segment(Frame segment, Time deadline) {
  segment.kind = Frame::Kind::kSegment;
  socket_.put(segment);
  unsaid_ += segment.bytes;
  if (unsaid_ < kPartBytes / 2) return;
  socket_.flush(deadline);
  unsaid_ = 0;
}

bool SharedStream::in_area(const Piece& piece) const {
  return std::greater_equal<>()(piece.data, area_->data()) &&
         std::less<>()(piece.data, area_->data() + kAreaBytes);
}

void SharedStream::copy(const Piece& piece, Time deadline) {
  COHORT_CHECK(piece.sequence == 0);  // it may be changing
  const size_t part = piece.bytes <= kMaxSegmentBytes ? piece.bytes : kPartBytes;
  for (size_t at = 0; at < piece.bytes; at += part) {
    const size_t bytes = std::min(part, piece.bytes - at);
    const size_t offset = take_offset(bytes, deadline);
    std::memcpy(area_->data() + offset, piece.data + at, bytes);
    put_segment({.number = offset, .bytes = bytes}, deadline);
  }
}

bool SharedStream::lend(const Piece& piece, Time deadline) {
  if (!lends_ || piece.bytes < kLentBytes) return false;
  const auto place =
      lent_.locate(piece.data, piece.bytes, [this](const Frame& frame) { socket_.put(frame); });
  if (!place) return false;
  unanswered_.push_back(piece.owner);
  put_segment({.region = place->region,
               .number = place->offset,
               .bytes = piece.bytes,
               .sequence = piece.sequence},
              deadline);
  return true;
}

void SharedStream::send(const Message& message, Time deadline) {
  begin_turn(true);
  socket_.put({.kind = Frame::Kind::kMessage, .bytes = message.payload_bytes()}, message.header);
  for (const Piece& piece : message.payload) {
    if (in_area(piece))
      put_segment({.number = static_cast<size_t>(piece.data - area_->data()), .bytes = piece.bytes},
                  deadline);
    else if (!lend(piece, deadline))
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
  unanswered_.clear();
  area_->close_descriptor();  // the other side has mapped it
  return {std::move(incoming.text), incoming.frame.bytes};
}

SharedStream::Segment SharedStream::receive_segment(uint64_t left, Time deadline) {
  FrameSocket::Incoming incoming;
  const Frame& frame = incoming.frame;
  do {
    do {
      give_back(deadline);
    } while (!socket_.get(incoming, deadline, wake_.get()));
    if (frame.kind == Frame::Kind::kError) throw error_in(incoming);
    if (frame.kind == Frame::Kind::kRegion) borrowed_.change(frame, other_);
  } while (frame.kind == Frame::Kind::kRegion);
  if (frame.kind != Frame::Kind::kSegment) invalid("a message was expected to go on");
  if (frame.bytes == 0 || frame.bytes > left)
    invalid("a message goes on with ", frame.bytes, " bytes, and has ", left, " to come");
  if (frame.region != 0) return {.memory = borrowed_.at(frame), .sequence = frame.sequence};
  if (frame.number > kAreaBytes || frame.bytes > kAreaBytes - frame.number)
    invalid("a message has ", frame.bytes, " bytes at ", frame.number, " of an area of ",
            kAreaBytes);
  return {.memory = received_.add(area_, area_->data() + frame.number, frame.bytes)};
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
