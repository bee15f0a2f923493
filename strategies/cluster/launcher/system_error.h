#pragma once

#include <cerrno>
#include <cstring>

#include "core/base/system_error.h"

namespace cohort::launcher {

// Fails with `parts` and what `error`, an errno, means, and its code.
template <typename... Parts>
[[noreturn]] void fail_system_with(int error, const Parts&... parts) {
  fail(code_of_errno(error), parts..., ": ", std::strerror(error));
}

// Fails with `parts` and what errno means, and its code.
template <typename... Parts>
[[noreturn]] void fail_system(const Parts&... parts) {
  fail_system_with(errno, parts...);
}

}  // namespace cohort::launcher
