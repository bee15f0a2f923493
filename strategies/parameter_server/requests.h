#pragma once

#include <memory>

#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server::proto {
class Request;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

// Begins a request of any kind, whose caller is known. Throws what it is to be refused with.
std::shared_ptr<Exchange> begin(Service& service, proto::Request& request,
                                const std::shared_ptr<Start>& start,
                                const std::shared_ptr<Caller>& caller);

}  // namespace cohort::parameter_server
