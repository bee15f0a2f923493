#include "core/base/quote.h"

#include <cstdio>

namespace cohort {

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string out = "\"";
  for (const char c : text.substr(0, kLongest)) {
    char escape[5];
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
    out += c >= ' ' && c <= '~' ? std::string(1, c) : escape;
  }
  return out + (text.size() > kLongest ? "...\"" : "\"");
}

}  // namespace cohort
