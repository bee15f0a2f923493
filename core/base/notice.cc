#include "core/base/notice.h"

#include <iostream>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/quote.h"

namespace cohort {
namespace {

using Sink = std::function<void(std::string_view lines)>;

std::mutex mutex;                    // of all that is written here, and of what follows
const LiveLine* standing = nullptr;  // behind whose text the cursor is

// Held while the sink runs, which may call what is here, and guards what follows.
std::recursive_mutex sink_mutex;
bool sink_runs = false;

// Never destroyed: threads may print until the process is gone.
std::shared_ptr<const Sink>& the_sink() {
  static auto& sink = *new std::shared_ptr<const Sink>();
  return sink;
}

// Whether it has taken the lines.
bool taken_by_sink(std::string_view lines) {
  const std::lock_guard lock(sink_mutex);
  const std::shared_ptr<const Sink> sink = the_sink();  // which may replace itself
  if (sink == nullptr || sink_runs) return false;
  sink_runs = true;
  bool taken = true;
  try {
    (*sink)(lines);
  } catch (...) {
    taken = false;
  }
  sink_runs = false;
  return taken;
}

}  // namespace

void print_notice(std::string_view lines) {
  const std::string text = printable_lines(lines);
  if (taken_by_sink(text)) return;
  const std::lock_guard lock(mutex);
  if (standing != nullptr) standing->show("");
  std::cerr << text << std::flush;
  if (standing != nullptr) standing->show(standing->text_);
}

void set_notice_sink(std::function<void(std::string_view lines)> sink) {
  auto next = sink ? std::make_shared<const Sink>(std::move(sink)) : nullptr;
  const std::lock_guard lock(sink_mutex);
  std::swap(the_sink(), next);
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
