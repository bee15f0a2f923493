#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"

// A request under way on a server, as the network sees it.
namespace cohort::parameter_server {

// Bytes that somebody keeps alive.
struct Piece {
  std::shared_ptr<const void> owner;
  const char* data = nullptr;
  size_t bytes = 0;
};

// A message: a header (a serialised proto::Reply or proto::Request, or nothing) and a payload.
struct Message {
  std::string header;
  std::vector<Piece> payload;
};

// Who sent a request: the way back. Thread-safe; may outlive the connection.
class Caller {
 public:
  virtual ~Caller() = default;
  // More payload may be received.
  virtual void resume() = 0;
  // The reply is ready: Exchange::next_message will be called until it returns nothing.
  virtual void reply() = 0;
  // Ends the call. Of several, and of reply(), the first counts.
  virtual void refuse(const Error& error) = 0;
};

// Calls come one at a time, from any thread.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // What the request has besides its header.
  virtual uint64_t payload_bytes() const { return 0; }
  // The next bytes of it; never more than there are. False: no more until Caller::resume().
  virtual bool receive(const char* /*data*/, size_t /*bytes*/) { return true; }
  // All has arrived; Caller::reply() or refuse() will follow.
  virtual void complete() = 0;
  // The next message of the reply.
  virtual std::optional<Message> next_message() = 0;
};

}  // namespace cohort::parameter_server
