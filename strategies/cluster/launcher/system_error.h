#pragma once

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace cohort::launcher {

// The canonical code of an errno.
inline Code code_of(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return Code::kNotFound;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermissionDenied;
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOMEM:
    case ENOSPC:
    case EADDRINUSE:
      return Code::kResourceExhausted;
    default:
      return Code::kUnknown;
  }
}

// Fails with `parts` and what `error` means.
template <typename... Parts>
[[noreturn]] void fail_system_with(int error, const Parts&... parts) {
  fail(code_of(error), parts..., ": ", std::strerror(error));
}

// Fails with `parts` and what errno means.
template <typename... Parts>
[[noreturn]] void fail_system(const Parts&... parts) {
  fail_system_with(errno, parts...);
}

}  // namespace cohort::launcher
