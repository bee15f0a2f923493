#include "core/base/notice.h"

#include <iostream>
#include <mutex>
#include <utility>

#include "core/base/quote.h"

namespace cohort {
namespace {

std::mutex mutex;                    // of all that is written here, and of what follows
const LiveLine* standing = nullptr;  // behind whose text the cursor is

}  // namespace

void print_notice(std::string_view lines) {
  const std::lock_guard lock(mutex);
  if (standing != nullptr) standing->show("");
  for (size_t end = 0; (end = lines.find('\n')) != lines.npos; lines.remove_prefix(end + 1))
    std::cerr << printable(lines.substr(0, end)) << '\n';
  std::cerr << printable(lines) << std::flush;
  if (standing != nullptr) standing->show(standing->text_);
}

void LiveLine::draw(std::string text) {
  const std::lock_guard lock(mutex);
  text_ = std::move(text);
  show(text_);
  standing = this;
}

void LiveLine::finish(std::string_view text) {
  const std::lock_guard lock(mutex);
  show(text);
  out_ << std::endl;
  standing = nullptr;
}

void LiveLine::end() {
  const std::lock_guard lock(mutex);
  if (standing != this) return;
  out_ << std::endl;
  standing = nullptr;
}

void LiveLine::show(std::string_view text) const {
  constexpr std::string_view kEraseRestOfLine = "\x1b[K";
  out_ << '\r' << text << kEraseRestOfLine << std::flush;
}

}  // namespace cohort
