#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>

#include "core/base/error.h"

namespace cohort {

// "a, b, c", for messages: of each item of a range what `shown` makes of it (a function or a
// member), as a stream prints it; "" where there are none. Of more than `most` items, which is 1 or
// more, the first ones and how many are left out: "a, b and 3 more". Not by views: clang 14, whose
// tools look at this code, cannot read those of GCC 12.
template <typename Items, typename Shown = std::identity>
std::string comma_separated(const Items& items, const Shown& shown = {},
                            size_t most = std::numeric_limits<size_t>::max()) {
  std::string list;
  size_t count = 0;
  for (const auto& item : items) {
    if (count < most) list += str(count == 0 ? "" : ", ", std::invoke(shown, item));
    ++count;
  }
  if (count > most) list += str(" and ", count - most, " more");
  return list;
}

}  // namespace cohort
