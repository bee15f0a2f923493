#include <chrono>
#include <iostream>
#include <optional>
#include <unistd.h>
#include <utility>

#include "core/base/progress.h"
#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

using Clock = std::chrono::steady_clock;

class ProgressBarCallback : public Callback {
 public:
  explicit ProgressBarCallback(const ProgressBarOptions& options)
      : out_(options.out ? *options.out : std::cout),
        is_stdout_(options.out == nullptr),
        live_(options.live.value_or(is_stdout_ && is_live_terminal(STDOUT_FILENO))) {}
  // Where an error has ended training, what is printed next begins a line of its own.
  ~ProgressBarCallback() override { end_line(); }

  void on_train_begin(Training&) override { end_line(); }

  void on_epoch_begin(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    out_ << "Epoch " << training.epoch() + 1 << "/" << training.options().epochs << std::endl;
    // On a terminal, the first batch shows at once.
    drawn_ = live_ ? Clock::time_point() : Clock::now();
  }

  void on_batch_end(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    // Often enough to look smooth on a terminal; seldom enough for a log file.
    const Clock::duration interval =
        live_ ? Clock::duration(std::chrono::milliseconds(50)) : std::chrono::minutes(1);
    if (Clock::now() - drawn_ < interval) return;
    draw(training, training.logs(), /*last=*/false);
    drawn_ = Clock::now();
  }

  void on_epoch_end(Training& training, Logs& logs) override {
    if (!training.model().strategy().is_chief()) return;
    draw(training, logs, /*last=*/true);
  }

  void on_train_end(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    end_line();
    if (training.stopping())
      out_ << "Training ended early: " << training.stop_reason() << std::endl;
  }

 private:
  void draw(const Training& training, const Logs& logs, bool last) {
    const std::string line = progress_line({.step = training.step(),
                                            .steps = training.steps(),
                                            .seconds = training.seconds(),
                                            .examples = training.examples(),
                                            .values = logs,
                                            .width = last ? std::nullopt : width()});
    constexpr const char* kEraseRestOfLine = "\x1b[K";
    if (live_)
      out_ << '\r' << line << kEraseRestOfLine << (last ? "\n" : "") << std::flush;
    else
      out_ << line << std::endl;
    is_in_line_ = live_ && !last;
  }

  // That of a line that can be drawn over: one which the terminal breaks cannot, nor one that
  // reaches the last column.
  std::optional<int64_t> width() const {
    const auto columns = live_ && is_stdout_ ? terminal_width(STDOUT_FILENO) : std::nullopt;
    return columns ? std::optional(*columns - 1) : std::nullopt;
  }

  void end_line() {
    if (std::exchange(is_in_line_, false)) out_ << std::endl;
  }

  std::ostream& out_;
  const bool is_stdout_;
  const bool live_;
  bool is_in_line_ = false;  // that is to be drawn over
  Clock::time_point drawn_;
};

}  // namespace

CallbackPtr ProgressBar(const ProgressBarOptions& options) {
  return std::make_shared<ProgressBarCallback>(options);
}

}  // namespace cohort::callbacks
