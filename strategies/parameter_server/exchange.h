#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

// A request under way on a server, as the network sees it.
namespace cohort::parameter_server {

// Bytes that somebody keeps alive.
struct Piece {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  size_t bytes = 0;
  // Not 0: a value that may change while it is looked at. Its guard (value_memory.h) stands before
  // it, and has had this sequence.
  uint64_t sequence = 0;
};

// A message: a header (a serialised proto::Reply or proto::Request, or nothing) and a payload.
struct Message {
  std::string header;
  std::vector<Piece> payload;

  uint64_t payload_bytes() const {
    uint64_t bytes = 0;
    for (const Piece& piece : payload) bytes += piece.bytes;
    return bytes;
  }
};

// What a request is refused with that has led to this.
Error refusal_of(const std::exception& thrown);

// Who sent a request: the way back. Thread-safe; may outlive the connection.
class Caller {
 public:
  virtual ~Caller() = default;
  // Whether the thread that brings the payload may wait for others: it serves this caller alone.
  virtual bool may_wait() const { return true; }
  // More payload may be received.
  virtual void resume() = 0;
  // The reply is ready: Exchange::next_message will be called until it returns nothing.
  virtual void reply() = 0;
  // Ends the call. Of several, and of reply(), the first counts.
  virtual void refuse(const Error& error) = 0;
  // Nobody is there any more to get an answer.
  virtual bool has_gone() const = 0;
};

// Memory that is sent without being copied once more; null when there is none.
using TakeMemory = std::function<std::shared_ptr<Buffer>(size_t bytes)>;

// Calls come one at a time, from any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // What the request has besides its header.
  virtual uint64_t payload_bytes() const { return 0; }
  // Memory for the next bytes of it, from which receive() does not copy them; or none.
  virtual std::span<char> room() { return {}; }
  // The next bytes of it; never more than there are. False: no more until Caller::resume().
  virtual bool receive(const char* /*data*/, size_t /*bytes*/) { return true; }
  // As receive, but what is in the piece stays as it is for as long as its owner is held.
  virtual bool receive_kept(const Piece& piece) { return receive(piece.data, piece.bytes); }
  // As receive, but the memory stays for as long as it is held. What is in it may change at any
  // time: what is looked at more than once has to be copied.
  virtual bool receive_shared(const std::shared_ptr<Buffer>& memory) {
    return receive(static_cast<const char*>(memory->data), memory->bytes);
  }
  // All has arrived; Caller::reply() or refuse() will follow.
  virtual void complete() = 0;
  // The next message of the reply. Where `take` is not null, it is asked for memory for values, in
  // the order of the payload.
  virtual std::optional<Message> next_message(const TakeMemory& take = nullptr) = 0;
};

}  // namespace cohort::parameter_server
