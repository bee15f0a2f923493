#include "strategies/parameter_server/tensor_payload.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace cohort::parameter_server {

Piece piece_of(const Tensor& tensor) {
  return {tensor.buffer(), static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

void Targets::take(const char* data, size_t bytes) {
  while (bytes > 0) {
    if (done()) fail(Code::kDataLoss, "a message is longer than it says");
    Tensor& target = targets_[next_];
    const size_t part = std::min(bytes, target.bytes() - filled_);
    char* const place = static_cast<char*>(target.raw()) + filled_;
    if (streams_)
      copy_past_cache(place, data, part);
    else
      std::memcpy(place, data, part);
    data += part;
    bytes -= part;
    filled_ += part;
    if (filled_ == target.bytes()) {
      ++next_;
      filled_ = 0;
    }
  }
}

}  // namespace cohort::parameter_server
