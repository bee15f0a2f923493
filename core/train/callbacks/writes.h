#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/train/training.h"

namespace cohort::callbacks {

// What becomes of the writes of a callback. One that the system refuses ends no training: the chief
// says so on standard error, and the next one is made as if nothing had happened.
class Writes {
 public:
  // `callback` is who writes.
  explicit Writes(std::string callback) : callback_(std::move(callback)) {}

  // When training begins: nothing was written yet, or refused.
  void begin();
  // What try_write() has returned of a write to `path`. The first refusal in a row is said, then
  // the second, the fourth and so on, with its reason and what there is of before.
  void record(Training& training, const std::string& path, const std::optional<Error>& refusal);
  // The same of a save, whose refusal is counted among the failed saves. Whether there is none.
  bool record_save(Training& training, const std::string& path,
                   const std::optional<Error>& refusal);
  // When training ends: where the last write was refused, fit() throws that.
  void end(Training& training) const;

  // The refusal of the last write, with what was said of it.
  const std::optional<Error>& refusal() const { return refusal_; }

  // The last write that was made, and the refusal, for Callback::state() and restore().
  CallbackState state() const;
  void restore(const CallbackState& state);

 private:
  std::string last_written() const;

  std::string callback_;
  std::string path_, moment_;  // of the last one that was written; empty: none
  std::optional<Error> refusal_;
  uint64_t refused_in_a_row_ = 0;
};

}  // namespace cohort::callbacks
