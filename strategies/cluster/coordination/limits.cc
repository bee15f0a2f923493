#include "strategies/cluster/coordination/limits.h"

#include <cinttypes>
#include <cstdio>

#include "strategies/cluster/parsing.h"

namespace cohort::coordination {

std::string in_words(std::chrono::milliseconds time) {
  if (time < std::chrono::seconds(1)) return str(time.count(), " ms");
  // Seconds with one digit, and none where it would be 0.
  const int64_t tenths = time.count() / 100 + (time.count() % 100 >= 50 ? 1 : 0);
  return tenths % 10 ? str(tenths / 10, ".", tenths % 10, " s") : str(tenths / 10, " s");
}

std::string in_hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

Error missing_key(std::string_view key, std::chrono::milliseconds timeout) {
  return Error(Code::kDeadlineExceeded,
               str("nobody has set key ", quote(key), " within ", in_words(timeout)));
}

}  // namespace cohort::coordination
