#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort::coordination {

// Who called, and by which number it knows the call.
struct Caller {
  int rank = 0;
  uint64_t id = 0;
};

// What becomes of a call.
struct Answer {
  Caller to;
  std::optional<Error> error = {};
  std::string_view value = {};  // the store's own, which stays until its next change
  int64_t number = 0;
};
using Answers = std::vector<Answer>;

}  // namespace cohort::coordination
