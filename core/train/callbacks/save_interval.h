#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "core/train/training.h"

namespace cohort::callbacks {

// The time from one save of a callback to the next, by Training::elapsed().
class SaveInterval {
 public:
  using Length = std::optional<std::chrono::duration<double>>;

  // Without a length it is never over. kInvalidArgument, naming the `callback`, unless a length is
  // more than 0.
  SaveInterval(std::string_view callback, const Length& length);

  // When training begins, and with each save.
  void begin(const Training& training) { began_ = training.elapsed(); }
  bool is_over(const Training& training) const;

 private:
  Length length_;
  std::chrono::duration<double> began_{0};
};

}  // namespace cohort::callbacks
