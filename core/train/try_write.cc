#include "core/train/try_write.h"

namespace cohort {
namespace {

bool is_refusal(Code code) {
  switch (code) {
    case Code::kNotFound:
    case Code::kPermissionDenied:
    case Code::kResourceExhausted:
    case Code::kUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<Error> try_write(const std::function<void()>& write) {
  try {
    write();
    return std::nullopt;
  } catch (const Error& error) {
    if (!is_refusal(error.code())) throw;
    return error;
  }
}

}  // namespace cohort
