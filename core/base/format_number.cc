#include "core/base/format_number.h"

#include <algorithm>
#include <iterator>

namespace cohort {

std::string format_number(double value, std::chars_format format, int precision) {
  if (format == std::chars_format::general) precision = std::max(precision, 1);
  char text[512];  // 1e308 has 409 characters with 99 decimals
  return {text, std::to_chars(text, std::end(text), value, format, precision).ptr};
}

}  // namespace cohort
