#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server {

// A request that arrives in messages, however these come. One thread at a time.
class ArrivingRequest {
 public:
  // The next message's header and the size of its payload; the first one opens the request. Throws
  // what it is to be refused with.
  void begin_message(Service& service, std::string_view header, uint64_t payload_bytes,
                     const std::shared_ptr<Caller>& caller, Service::Session& session);
  // Null before the first message.
  const std::shared_ptr<Exchange>& exchange() const { return exchange_; }
  // Whether the messages that have begun have all of it.
  bool complete() const { return left_ == 0; }
  void reset() { exchange_ = nullptr; }

 private:
  std::shared_ptr<Exchange> exchange_;
  uint64_t left_ = 0;  // of its payload
};

}  // namespace cohort::parameter_server
