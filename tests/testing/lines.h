#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace cohort::testing {

// Lines for people, kept. Thread-safe.
class Lines {
 public:
  std::function<void(const std::string&)> writer() {
    return [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
  }
  // How many have `part` in them.
  int64_t count(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::count_if(
        lines_, [&](const std::string& line) { return line.find(part) != std::string::npos; });
  }
  bool has(const std::string& part) const { return count(part) > 0; }
  // The last that has `part` in it, or "".
  std::string last(const std::string& part) const {
    const std::lock_guard lock(mutex_);
    for (auto line = lines_.rbegin(); line != lines_.rend(); ++line)
      if (line->find(part) != std::string::npos) return *line;
    return "";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    return text;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace cohort::testing
