#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>

#include "core/base/error.h"

namespace cohort {

// "a, b, c", for messages: of each item of a range, or of the first `most`, what `shown` makes of
// it (a function or a member), as a stream prints it; "" where there are none. Not by views: clang
// 14, whose tools look at this code, cannot read those of GCC 12.
template <typename Items, typename Shown = std::identity>
std::string comma_separated(const Items& items, const Shown& shown = {},
                            size_t most = std::numeric_limits<size_t>::max()) {
  std::string list;
  size_t count = 0;
  for (const auto& item : items) {
    if (count == most) break;
    list += str(count++ == 0 ? "" : ", ", std::invoke(shown, item));
  }
  return list;
}

}  // namespace cohort
