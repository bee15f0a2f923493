#pragma once

#include <string>

#include "core/base/error.h"

namespace cohort {

// "a, b, c": the items of a range, or of a view of one, as a stream prints them, for messages; ""
// where there are none.
template <typename Items>
std::string comma_separated(Items&& items) {
  std::string list;
  const char* separator = "";
  for (const auto& item : items) {
    list += str(separator, item);
    separator = ", ";
  }
  return list;
}

}  // namespace cohort
