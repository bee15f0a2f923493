#include "core/train/callbacks/path_pattern.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <regex>

#include "core/base/error.h"
#include "core/base/format_number.h"

namespace cohort::callbacks {
namespace {

// {name}, {name:02d}, {name:.3f}: the name, width and precision, and type of a field.
const std::regex& field_regex() {
  static const std::regex field(R"(\{([^{}:]+)(?::([0-9]{0,2}(?:\.[0-9]{1,2})?)([dfeg]?))?\})");
  return field;
}

std::chars_format format_of(const std::string& type) {
  if (type == "f") return std::chars_format::fixed;
  return type == "e" ? std::chars_format::scientific : std::chars_format::general;
}

// As printf() does: a width that begins with 0 fills up with zeros, behind the sign.
std::string padded(std::string digits, const std::string& width, bool is_finite) {
  const size_t columns = width.empty() ? 0 : std::stoul(width);
  if (digits.size() >= columns) return digits;
  const bool with_zeros = is_finite && width[0] == '0';
  const size_t at = with_zeros && digits[0] == '-' ? 1 : 0;
  return digits.insert(at, columns - digits.size(), with_zeros ? '0' : ' ');
}

// "02" and "d", or "8.3" and "f", applied to a value. Without a type, what is integral looks so.
std::string format_value(double value, const std::string& size, const std::string& type) {
  const size_t point = size.find('.');
  const bool has_precision = point != std::string::npos;
  const bool as_integer =
      type == "d" || (type.empty() && value == std::floor(value) && !has_precision);
  if (as_integer && std::abs(value) < 0x1p62) {
    char text[128];
    std::snprintf(text, sizeof text, ("%" + size + "lld").c_str(), std::llround(value));
    return text;
  }
  const int precision = has_precision ? std::stoi(size.substr(point + 1)) : 6;
  return padded(format_number(value, format_of(type), precision), size.substr(0, point),
                std::isfinite(value));
}

}  // namespace

void require_pattern(std::string_view callback, const std::string& pattern) {
  if (std::regex_replace(pattern, field_regex(), "").find_first_of("{}") != std::string::npos)
    invalid(callback, ": ", pattern,
            ": braces are for {name}, {name:02d} or {name:.3f}, with a type of d, f, e or g");
}

std::set<std::string> names_in(const std::string& pattern) {
  std::set<std::string> names;
  for (std::sregex_iterator field(pattern.begin(), pattern.end(), field_regex()), end; field != end;
       ++field)
    names.insert((*field)[1].str());
  return names;
}

bool names_validation(const std::string& pattern) {
  return pattern.find(str('{', kValidationPrefix)) != std::string::npos;
}

std::string fill_pattern(std::string_view callback, const std::string& pattern,
                         const Logs& values) {
  std::string out;
  std::string rest = pattern;
  for (std::smatch match; std::regex_search(rest, match, field_regex()); rest = match.suffix()) {
    const auto value = values.find(match[1]);
    if (value == values.end())
      invalid(callback, ": ", pattern, ": there is no value \"", match[1].str(), "\"");
    out += match.prefix().str() + format_value(value->second, match[2], match[3]);
  }
  return out + rest;
}

}  // namespace cohort::callbacks
