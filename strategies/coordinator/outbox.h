#pragma once

#include <deque>
#include <memory>

#include "strategies/parameter_server/wire.h"

namespace cohort::coordinator {

// Messages on their way out, of which one part at a time is being written. Not synchronised.
class Outbox {
 public:
  Outbox();
  ~Outbox();
  // Whether nothing waits and nothing is being written.
  bool idle() const { return !writing_ && waiting_.empty(); }
  void add(parameter_server::Message message) { waiting_.emplace_back(std::move(message)); }
  // The next part to be written, which stays until written() is called; null when one is being
  // written, or there is none.
  const grpc::ByteBuffer* next();
  void written() { writing_ = false; }
  // What waits will not be sent.
  void drop() { waiting_.clear(); }

 private:
  std::deque<parameter_server::MessageCutter> waiting_;
  std::unique_ptr<grpc::ByteBuffer> part_;
  bool writing_ = false;
};

}  // namespace cohort::coordinator
