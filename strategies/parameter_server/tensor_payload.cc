#include "strategies/parameter_server/tensor_payload.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "core/tensor/bool_bytes.h"

namespace cohort::parameter_server {

Piece piece_of(const Tensor& tensor) {
  return {tensor.buffer(), static_cast<const char*>(tensor.raw()), tensor.bytes()};
}

std::span<char> Targets::room() {
  if (done()) return {};
  Tensor& target = targets_[next_];
  return {static_cast<char*>(target.raw()) + filled_, target.bytes() - filled_};
}

void Targets::take(const char* data, size_t bytes) {
  while (bytes > 0) {
    if (done()) fail(Code::kDataLoss, "a message is longer than it says");
    const std::span<char> place = room();
    const size_t part = std::min(bytes, place.size());
    if (streams_ && place.data() != data)
      copy_past_cache(place.data(), data, part);
    else if (place.data() != data)
      std::memcpy(place.data(), data, part);
    data += part;
    bytes -= part;
    filled_ += part;
    if (part == place.size()) {
      normalize_bools(targets_[next_]);
      ++next_;
      filled_ = 0;
    }
  }
}

}  // namespace cohort::parameter_server
