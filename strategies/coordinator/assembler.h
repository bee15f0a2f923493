#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "strategies/coordinator/messages.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::coordinator {

// Puts messages together from the parts in which they arrive. One thread at a time.
template <typename T>
class Assembler {
 public:
  using Decode = Decoded<T> (*)(const std::string& header, size_t max_bytes);
  Assembler(Decode decode, size_t max_bytes) : decode_(decode), max_bytes_(max_bytes) {}

  // The next part; the message when this was its last. Errors of `decode`, kInvalidArgument and
  // kDataLoss for parts that do not fit together.
  std::optional<T> take(const parameter_server::MessageReader& part) {
    if (!present_)
      present_ = decode_(part.header(), max_bytes_);
    else if (!part.header().empty() || part.payload_bytes() == 0)
      invalid("a message came before the one before it was complete");
    part.read([&](const parameter_server::Piece& piece) {
      present_->targets.take(piece.data, piece.bytes);
    });
    if (!present_->targets.done()) return std::nullopt;
    std::optional<T> whole = std::move(present_->message);
    present_.reset();
    return whole;
  }

 private:
  const Decode decode_;
  const size_t max_bytes_;
  std::optional<Decoded<T>> present_;
};

}  // namespace cohort::coordinator
