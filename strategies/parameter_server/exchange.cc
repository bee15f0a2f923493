#include "strategies/parameter_server/exchange.h"

#include <new>

namespace cohort::parameter_server {

Error refusal_of(const std::exception& thrown) {
  if (const auto* error = dynamic_cast<const Error*>(&thrown)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&thrown) != nullptr)
    return Error(Code::kResourceExhausted, "the server has no memory for this request");
  return Error(Code::kUnknown, thrown.what());
}

}  // namespace cohort::parameter_server
