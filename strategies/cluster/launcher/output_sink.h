#pragma once

#include <memory>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

namespace cohort::launcher {

// Where lines of many tasks go: a queue before an inherited descriptor, written only as fast as the
// other end reads, so that a reader who pauses never blocks the supervisor. What a full disk does
// not take, or nobody has read when it is given up, is lost, and said once in `notices`, where
// there is one.
class OutputSink {
 public:
  explicit OutputSink(int descriptor, std::shared_ptr<OutputSink> notices = nullptr);

  int descriptor() const { return descriptor_; }
  // Whether a person looks at it and may like colours (NO_COLOR and TERM=dumb say no).
  bool has_colours() const { return has_colours_; }
  void append(std::string_view text) {
    if (!broken_) queue_ += text;
  }
  // Whether readers of tasks' output should pause.
  bool is_full() const { return queue_.size() - written_ > kCapacity; }
  bool is_empty() const { return written_ == queue_.size(); }
  // Whether nobody reads the other end any more: what is appended then is dropped.
  bool is_broken() const { return broken_; }
  // Writes as much as the other end takes without waiting.
  void write_some();
  // Loses what is queued.
  void give_up();
  // Why some of it was lost, of what the other end ought to have taken; nothing where all was
  // taken.
  std::optional<Code> loss() const { return loss_; }

 private:
  static constexpr size_t kCapacity = 1 << 20;

  void lose(Code code, const std::string& why);

  int descriptor_;
  std::shared_ptr<OutputSink> notices_;
  bool has_colours_;
  bool broken_ = false;
  std::optional<Code> loss_;
  std::string queue_;
  size_t written_ = 0;
};

// The sinks of standard output and standard error: one and the same when both are the same file, so
// that lines of the one never end up inside lines of the other.
struct Console {
  Console();

  bool is_empty() const { return output->is_empty() && errors->is_empty(); }
  // Adds what to wait for before write_some().
  void watch(std::vector<pollfd>& events) const;
  // Writes as much as both take without waiting.
  void write_some() const;
  // Loses what is queued, but for what is said of that, as far as errors are read.
  void give_up() const;
  // The exit code of a run that ends with `code`: where that is 0, the code of an output's loss.
  int code_of_end(int code) const;

  std::shared_ptr<OutputSink> output, errors;
};

}  // namespace cohort::launcher
