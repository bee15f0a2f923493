#pragma once

#include <charconv>
#include <string>

namespace cohort {

// `value` as printf() writes it by "%.*f" (std::chars_format::fixed), "%.*e" (scientific) or "%.*g"
// (general), whatever the program's locale is. `precision` from 0 to 99.
std::string format_number(double value, std::chars_format format, int precision);

}  // namespace cohort
