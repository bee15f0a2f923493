#include "core/base/error.h"

#include <utility>

namespace cohort {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
  }
  return "UNKNOWN";
}

Code code_of(int64_t number) {
  const bool known = number >= static_cast<int64_t>(Code::kCancelled) &&
                     number <= static_cast<int64_t>(Code::kDataLoss);
  return known ? static_cast<Code>(number) : Code::kUnknown;
}

Error::Error(Code code, std::string message, std::string peer)
    : code_(code), message_(std::move(message)), peer_(std::move(peer)) {
  what_ = str(code_name(code_), ": ", message_);
  if (!peer_.empty()) what_ += str(" (peer ", peer_, ")");
}

Error Error::with_context(std::string_view context) const {
  return Error(code_, str(context, ": ", message_), peer_);
}

int exit_code(Code code) {
  // 2 is what the shell's own tools use for wrong usage; the rest start at 10, clear of signals
  // (128+).
  if (code == Code::kInvalidArgument) return 2;
  return 10 + static_cast<int>(code);
}

}  // namespace cohort
