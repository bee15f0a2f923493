#include "strategies/parameter_server/arriving_request.h"

#include "core/base/error.h"

namespace cohort::parameter_server {

void ArrivingRequest::begin_message(Service& service, std::string_view header,
                                    uint64_t payload_bytes, const std::shared_ptr<Caller>& caller,
                                    Service::Session& session) {
  if (exchange_ == nullptr) {
    exchange_ = service.open(header, caller, session);
    left_ = exchange_->payload_bytes();
  } else if (!header.empty() || left_ == 0) {
    invalid("a request came before the one before it was complete");
  }
  if (payload_bytes > left_)
    invalid("a request has ", payload_bytes - left_, " bytes more than it says");
  if (payload_bytes == 0 && left_ > 0 && header.empty()) invalid("a message of a request is empty");
  left_ -= payload_bytes;
  service.received(payload_bytes);
}

}  // namespace cohort::parameter_server
