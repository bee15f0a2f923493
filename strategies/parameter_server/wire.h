#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/exchange.h"

namespace grpc {
class ByteBuffer;
class Status;
}  // namespace grpc

// Messages as bytes, for both sides: the fields of RequestMessage and ReplyMessage in
// proto/parameter_server.proto, without copying payloads.
namespace cohort::parameter_server {

inline constexpr uint32_t kProtocolVersion = 10;
inline constexpr char kMethod[] = "/cohort.parameter_server.proto.ParameterServer/Exchange";
// Of one message; longer payloads continue in the next one.
inline constexpr size_t kMaxPayloadBytes = 1 << 20;
inline constexpr size_t kMaxHeaderBytes = 8 << 20;
inline constexpr int kMaxMessageBytes = static_cast<int>(kMaxHeaderBytes + kMaxPayloadBytes + 64);
// Rows that one reply lists: they fit into a header.
inline constexpr int64_t kMaxListedRows = 1 << 18;
// Of the rows that one push or pull names.
inline constexpr uint64_t kMaxRowsBytes = uint64_t{1} << 30;

// An error as what a call ends with, and back. Long texts are cut.
grpc::Status status_of(const Error& error);
Error error_of(const grpc::Status& status);

// A wait that a request asks for, a year at most.
std::chrono::milliseconds timeout_of(uint64_t milliseconds);

// Cuts a message into such as may be sent. The payload is only referred to, and kept alive as long
// as gRPC needs it.
class MessageCutter {
 public:
  explicit MessageCutter(Message message) : message_(std::move(message)) {}
  // Whether there is another one.
  bool has_next() const { return !begun_ || piece_ < message_.payload.size(); }
  grpc::ByteBuffer next();

 private:
  Message message_;
  bool begun_ = false;
  size_t piece_ = 0, offset_ = 0;
};

// Takes a message apart. kInvalidArgument for bytes that are none.
class MessageReader {
 public:
  explicit MessageReader(const grpc::ByteBuffer& buffer);
  ~MessageReader();
  MessageReader(const MessageReader&) = delete;
  MessageReader& operator=(const MessageReader&) = delete;

  const std::string& header() const { return header_; }
  size_t payload_bytes() const { return payload_bytes_; }
  // Calls `take` with the payload, part by part.
  void read(const std::function<void(const Piece& part)>& take) const;

 private:
  struct Slices;
  std::unique_ptr<Slices> slices_;
  std::string header_;
  size_t payload_bytes_ = 0;
};

}  // namespace cohort::parameter_server
