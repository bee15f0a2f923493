#pragma once

#include <functional>

#include "core/base/error.h"

namespace cohort::testing {

// What `f` throws; an error with the message "no error" if nothing.
inline Error error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error;
  }
  return Error(Code::kUnknown, "no error");
}

}  // namespace cohort::testing
