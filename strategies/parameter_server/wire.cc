#include "strategies/parameter_server/wire.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <grpc/grpc.h>
#include <grpcpp/grpcpp.h>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

// Protobuf's tags of fields 1 and 2 with a length before their bytes.
constexpr char kHeaderTag = 0x0a, kPayloadTag = 0x12;
// Of the message, and of the peer: gRPC may take three bytes for one, and has a limit for both.
constexpr size_t kMaxErrorBytes = 2048, kMaxPeerBytes = 256;
// Longer than anybody waits, and short enough to be added to a time. Who has gone waits no longer.
constexpr std::chrono::milliseconds kMaxTimeout = std::chrono::years(1);

void write_varint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

grpc::Slice slice_of(const Piece& piece, size_t offset, size_t bytes) {
  auto* owner = new std::shared_ptr<const void>(piece.owner);
  return grpc::Slice(
      const_cast<char*>(piece.data + offset), bytes,
      [](void* p) { delete static_cast<std::shared_ptr<const void>*>(p); }, owner);
}

}  // namespace

grpc::Status status_of(const Error& error) {
  // The peer travels behind the message, which may have lines itself.
  return {
      static_cast<grpc::StatusCode>(error.code()),
      str(error.message().substr(0, kMaxErrorBytes), "\n", error.peer().substr(0, kMaxPeerBytes))};
}

Error error_of(const grpc::Status& status) {
  // Unknown is what gRPC says of a connection that broke in an odd way, as by a TLS record that
  // does not fit its check; the server never says so.
  const Code code = code_of(status.error_code());
  const std::string& text = status.error_message();
  const size_t line = text.rfind('\n');
  return Error(code == Code::kUnknown ? Code::kUnavailable : code, text.substr(0, line),
               line == std::string::npos ? "" : text.substr(line + 1));
}

std::chrono::milliseconds timeout_of(uint64_t milliseconds) {
  const auto most = static_cast<uint64_t>(kMaxTimeout.count());
  return std::chrono::milliseconds(static_cast<int64_t>(std::min(milliseconds, most)));
}

grpc::ByteBuffer MessageCutter::next() {
  std::string head;
  if (!std::exchange(begun_, true) && !message_.header.empty()) {
    head.push_back(kHeaderTag);
    write_varint(message_.header.size(), head);
    head += message_.header;
  }
  std::vector<grpc::Slice> slices(1);
  size_t total = 0;
  while (piece_ < message_.payload.size() && total < kMaxPayloadBytes) {
    const Piece& piece = message_.payload[piece_];
    const size_t bytes = std::min(piece.bytes - offset_, kMaxPayloadBytes - total);
    if (bytes > 0) slices.push_back(slice_of(piece, offset_, bytes));
    total += bytes;
    offset_ += bytes;
    if (offset_ == piece.bytes) {
      ++piece_;
      offset_ = 0;
    }
  }
  if (total > 0) {
    head.push_back(kPayloadTag);
    write_varint(total, head);
  }
  slices[0] = grpc::Slice(head);
  return grpc::ByteBuffer(slices.data(), slices.size());
}

struct MessageReader::Slices {
  std::vector<grpc::Slice> all;
  size_t slice = 0, offset = 0;  // where the payload begins

  const char* here() const { return reinterpret_cast<const char*>(all[slice].begin()) + offset; }
  size_t here_bytes() const { return all[slice].size() - offset; }
  bool at_end() {
    while (slice < all.size() && offset == all[slice].size()) {
      ++slice;
      offset = 0;
    }
    return slice == all.size();
  }
  char byte() {
    if (at_end()) invalid("a message ends too soon");
    return static_cast<char>(all[slice].begin()[offset++]);
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto next = static_cast<uint8_t>(byte());
      value |= static_cast<uint64_t>(next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
    invalid("a length in a message is too long");
  }
};

MessageReader::MessageReader(const grpc::ByteBuffer& buffer) : slices_(std::make_unique<Slices>()) {
  if (!buffer.Dump(&slices_->all).ok()) invalid("a message cannot be read");
  size_t left = buffer.Length();
  if (slices_->at_end()) return;
  char tag = slices_->byte();
  if (tag == kHeaderTag) {
    const uint64_t bytes = slices_->varint();
    if (bytes > kMaxHeaderBytes || bytes > left) invalid("a header of ", bytes, " bytes");
    header_.reserve(bytes);
    while (header_.size() < bytes) {
      if (slices_->at_end()) invalid("a message ends within its header");
      const size_t part = std::min<size_t>(bytes - header_.size(), slices_->here_bytes());
      header_.append(slices_->here(), part);
      slices_->offset += part;
    }
    if (slices_->at_end()) return;
    tag = slices_->byte();
  }
  if (tag != kPayloadTag) invalid("a message has an unknown field");
  payload_bytes_ = slices_->varint();
  size_t found = slices_->at_end() ? 0 : slices_->here_bytes();
  for (size_t i = slices_->slice + 1; i < slices_->all.size(); ++i) found += slices_->all[i].size();
  if (payload_bytes_ != found)
    invalid("a message has ", found, " bytes of payload and says ", payload_bytes_);
}

MessageReader::~MessageReader() = default;

void MessageReader::read(const std::function<void(const Piece& part)>& take) const {
  for (size_t i = slices_->slice; i < slices_->all.size(); ++i) {
    const size_t skipped = i == slices_->slice ? slices_->offset : 0;
    if (slices_->all[i].size() == skipped) continue;
    const auto slice = std::make_shared<const grpc::Slice>(slices_->all[i]);
    take({slice, reinterpret_cast<const char*>(slice->begin()) + skipped, slice->size() - skipped});
  }
}

}  // namespace cohort::parameter_server
