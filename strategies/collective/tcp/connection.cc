#include "strategies/collective/tcp/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/crc32c.h"
#include "strategies/cluster/net/socket.h"
#include "strategies/collective/tcp/control.h"

namespace cohort::tcp {
namespace {

constexpr size_t kMaxPieces = 64;
constexpr size_t kBuffer = 16384;

std::string_view bytes_of(const iovec& piece) {
  return {static_cast<const char*>(piece.iov_base), piece.iov_len};
}

}  // namespace

void Memory::add(const void* data, int64_t bytes) {
  if (bytes == 0) return;
  pieces_.push_back({const_cast<char*>(static_cast<const char*>(data)), bytes_, bytes_ + bytes});
  bytes_ += bytes;
}

void Memory::find(int64_t begin, int64_t end, char* scratch, size_t limit,
                  std::vector<iovec>& found) const {
  auto piece = std::upper_bound(pieces_.begin(), pieces_.end(), begin,
                                [](int64_t at, const Piece& p) { return at < p.end; });
  while (begin < end && limit-- > 0) {
    int64_t stop = std::min(end, piece->end);
    if (piece->data == nullptr) stop = std::min<int64_t>(stop, begin + int64_t{kScratch});
    found.push_back({piece->data == nullptr ? scratch : piece->data + (begin - piece->begin),
                     static_cast<size_t>(stop - begin)});
    if (piece->data == nullptr) return;  // there is only one scratch
    begin = stop;
    if (begin == piece->end) ++piece;
  }
}

Connection::Connection(int peer, net::Stream link, bool check_payloads)
    : peer_(peer), link_(std::move(link)), check_payloads_(check_payloads), buffer_(kBuffer) {}

bool Connection::has_output() const {
  if (sent_ < to_send_ || link_.has_unsent()) return true;
  return std::any_of(std::begin(streams_), std::end(streams_),
                     [](const Stream& s) { return s.empty_frame || s.next < s.ready; });
}

bool Connection::is_sending(const Memory& memory) const {
  if (sent_ < to_send_ && sent_memory_ == &memory) return true;
  return std::any_of(std::begin(streams_), std::end(streams_),
                     [&](const Stream& s) { return s.memory == &memory && s.next < s.end; });
}

void Connection::forget_output() {
  sent_ = to_send_ = 0;
  for (Stream& stream : streams_) stream = {};
}

bool Connection::cut_frame() {
  for (Stream& stream : streams_) {
    const int64_t chunk = std::min(stream.chunk, stream.end - stream.next);
    if (!stream.empty_frame && (stream.next >= stream.ready || stream.ready - stream.next < chunk))
      continue;
    sent_header_ = stream.header;
    sent_header_.length = static_cast<uint32_t>(std::min(chunk, stream.ready - stream.next));
    sent_memory_ = stream.memory;
    sent_begin_ = stream.next;
    if (check_payloads_ && sent_header_.length > 0) {
      uint32_t check = 0;
      int64_t at = sent_begin_;
      const int64_t end = at + sent_header_.length;
      while (at < end) {
        pieces_.clear();
        sent_memory_->find(at, end, nullptr, kMaxPieces, pieces_);
        for (const iovec& piece : pieces_) {
          check = crc32c(bytes_of(piece), check);
          at += static_cast<int64_t>(piece.iov_len);
        }
      }
      sent_header_.payload_check = check;
      sent_header_.flags = kPayloadChecked;
    }
    seal(sent_header_);
    sent_ = 0;
    to_send_ = sizeof sent_header_ + sent_header_.length;
    stream.header.index += sent_header_.length;
    stream.next += sent_header_.length;
    stream.empty_frame = false;
    return true;
  }
  return false;
}

bool Connection::send_some() {
  if (!is_open() || (sent_ == to_send_ && !link_.has_unsent() && !cut_frame())) return false;
  pieces_.clear();
  size_t payload = 0;
  if (sent_ < sizeof sent_header_)
    pieces_.push_back(
        {reinterpret_cast<char*>(&sent_header_) + sent_, sizeof sent_header_ - sent_});
  else
    payload = sent_ - sizeof sent_header_;
  if (sent_header_.length > payload)
    sent_memory_->find(sent_begin_ + static_cast<int64_t>(payload),
                       sent_begin_ + sent_header_.length, nullptr, kMaxPieces, pieces_);
  const bool is_new = sent_ < to_send_;
  const ssize_t sent = is_new ? link_.write(pieces_) : link_.flush();
  if (sent < 0) {
    if (!net::would_block(errno)) fail_with(errno);
    return false;
  }
  if (is_new) sent_ += static_cast<size_t>(sent);
  return true;
}

// Whether there is a frame to be filled now.
bool Connection::take_header(Receiver& receiver) {
  if (in_frame_) return true;
  if (buffered_ - taken_ < sizeof header_) {
    std::memmove(buffer_.data(), buffer_.data() + taken_, buffered_ - taken_);
    buffered_ -= taken_;
    taken_ = 0;
    return false;
  }
  std::memcpy(&header_, buffer_.data() + taken_, sizeof header_);
  if (!is_intact(header_)) {
    failure_ = "has sent a frame with a wrong header";
    corrupt_ = true;
    return false;
  }
  destination_ = {};
  if (!receiver.accept(peer_, header_, destination_)) {
    parked_ = true;
    return false;
  }
  taken_ += sizeof header_;
  in_frame_ = true;
  got_ = 0;
  check_ = 0;
  return true;
}

size_t Connection::read(std::span<const iovec> pieces) {
  const ssize_t got = link_.read(pieces);
  if (got == 0) fail_with(0);
  if (got < 0 && !net::would_block(errno)) fail_with(errno);
  return got > 0 ? static_cast<size_t>(got) : 0;
}

size_t Connection::read_payload() {
  pieces_.clear();
  if (scratch_.empty()) scratch_.resize(Memory::kScratch);
  destination_.memory->find(destination_.begin + got_, destination_.begin + header_.length,
                            scratch_.data(), kMaxPieces, pieces_);
  if (taken_ < buffered_) {
    size_t got = 0;
    for (const iovec& piece : pieces_) {
      const size_t part = std::min(piece.iov_len, buffered_ - taken_);
      std::memcpy(piece.iov_base, buffer_.data() + taken_, part);
      taken_ += part;
      got += part;
    }
    return got;
  }
  // The next header comes along.
  size_t room = 0;
  for (const iovec& piece : pieces_) room += piece.iov_len;
  const bool to_the_end = got_ + static_cast<int64_t>(room) == header_.length;
  pieces_.push_back({buffer_.data(), to_the_end ? sizeof(FrameHeader) : 0});
  const size_t all = read(pieces_);
  pieces_.pop_back();
  if (all == 0) return 0;
  const size_t got = std::min(all, room);
  taken_ = 0;
  buffered_ = all - got;
  return got;
}

void Connection::extend_check(size_t bytes) {
  for (const iovec& piece : pieces_) {
    if (bytes == 0) break;
    const size_t part = std::min(piece.iov_len, bytes);
    check_ = crc32c({static_cast<const char*>(piece.iov_base), part}, check_);
    bytes -= part;
  }
}

bool Connection::receive_some(Receiver& receiver) {
  bool moved = false;
  if (!is_open() || parked_) return false;
  while (true) {
    if (!take_header(receiver)) {
      if (parked_ || !is_open()) return moved;
      const iovec room{buffer_.data() + buffered_, kBuffer - buffered_};
      const size_t got = read({&room, 1});
      if (got == 0) return moved;
      buffered_ += got;
      moved = true;
      continue;
    }
    while (got_ < header_.length) {
      const size_t got = read_payload();
      if (got == 0) return moved;
      moved = true;
      got_ += static_cast<int64_t>(got);
      if (header_.flags & kPayloadChecked) extend_check(got);
    }
    if ((header_.flags & kPayloadChecked) && check_ != header_.payload_check) {
      failure_ = "has sent a payload that does not fit its check";
      corrupt_ = true;
      return true;
    }
    in_frame_ = false;
    moved = true;
    receiver.arrived(peer_, header_);
    if (header_.length > kBuffer) return true;  // others come to their turn
  }
}

void Connection::fail_with(int error) {
  failure_ = link_.failure(error);
  corrupt_ = link_.encrypted() && error == EPROTO;
}

std::vector<std::unique_ptr<Connection>> make_connections(Control& control,
                                                          std::vector<net::Stream> links,
                                                          bool check_payloads) {
  std::vector<std::unique_ptr<Connection>> connections(links.size());
  for (size_t p = 0; p < links.size(); ++p) {
    if (!links[p]) continue;
    const int peer = static_cast<int>(p);
    control.watch(peer, links[p].fd());
    connections[p] = std::make_unique<Connection>(peer, std::move(links[p]), check_payloads);
  }
  return connections;
}

}  // namespace cohort::tcp
