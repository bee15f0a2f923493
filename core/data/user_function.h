#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/error.h"

namespace cohort::data {

// Calls a function of the user's for elements of a stream. An Error that it throws says for which
// one: "map(): element 3: ...". Elements count from 0 where the stream began, or was restored.
// Anything else arrives as it was thrown.
class UserFunctionCalls {
 public:
  explicit UserFunctionCalls(std::string_view transformation) : transformation_(transformation) {}

  void set_restored() { from_ = " from where it was restored"; }

  template <typename Call>
  auto of_element(int64_t number, const Call& call) const {
    try {
      return call();
    } catch (const Error& error) {
      throw error.with_context(str(transformation_, ": element ", number, from_));
    }
  }

 private:
  std::string_view transformation_;
  std::string_view from_;
};

}  // namespace cohort::data
