#include "core/base/quote.h"

#include <cstdio>

namespace cohort {

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    char escape[5];
    std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(c));
    out += c >= ' ' && c <= '~' ? std::string(1, c) : escape;
  }
  return out;
}

std::string quote(std::string_view text) {
  constexpr size_t kLongest = 60;
  return '"' + escaped(text.substr(0, kLongest)) + (text.size() > kLongest ? "...\"" : "\"");
}

std::string printable(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  std::string out(text);
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char before = i > 0 ? byte(i - 1) : 0;
    const bool is_c1 = byte(i) >= 0x80 && byte(i) < 0xa0 && (before < 0x80 || before == 0xc2);
    if (is_c1 && before == 0xc2) out[i - 1] = '?';
    if (is_c1 || byte(i) < ' ' || byte(i) == 0x7f) out[i] = '?';
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t end = 0; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1))
    out += printable(text.substr(0, end)) + '\n';
  return out + printable(text);
}

}  // namespace cohort
