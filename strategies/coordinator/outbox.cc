#include "strategies/coordinator/outbox.h"

#include <grpcpp/support/byte_buffer.h>

namespace cohort::coordinator {

Outbox::Outbox() : part_(std::make_unique<grpc::ByteBuffer>()) {}
Outbox::~Outbox() = default;

const grpc::ByteBuffer* Outbox::next() {
  if (writing_ || waiting_.empty()) return nullptr;
  *part_ = waiting_.front().next();
  if (!waiting_.front().has_next()) waiting_.pop_front();
  writing_ = true;
  return part_.get();
}

}  // namespace cohort::coordinator
