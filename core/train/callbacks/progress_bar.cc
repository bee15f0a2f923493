#include <chrono>
#include <iostream>
#include <optional>
#include <unistd.h>

#include "core/base/notice.h"
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
        live_(options.live.value_or(is_stdout_ && is_live_terminal(STDOUT_FILENO))),
        line_(out_) {}

  // Where an error has ended training before, this begins a line of its own.
  void on_train_begin(Training&) override { line_.end(); }

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
    line_.end();
    if (training.stopping())
      out_ << "Training ended early: " << training.stop_reason() << std::endl;
  }

 private:
  void draw(const Training& training, const Logs& logs, bool last) {
    const std::string text = progress_line({.step = training.step(),
                                            .steps = training.steps(),
                                            .seconds = training.seconds(),
                                            .examples = training.examples(),
                                            .values = logs,
                                            .width = last ? std::nullopt : width()});
    if (!live_)
      out_ << text << std::endl;
    else if (last)
      line_.finish(text);
    else
      line_.draw(text);
  }

  // That of a line that can be drawn over: one which the terminal breaks cannot, nor one that
  // reaches the last column.
  std::optional<int64_t> width() const {
    const auto columns = live_ && is_stdout_ ? terminal_width(STDOUT_FILENO) : std::nullopt;
    return columns ? std::optional(*columns - 1) : std::nullopt;
  }

  std::ostream& out_;
  const bool is_stdout_;
  const bool live_;
  LiveLine line_;
  Clock::time_point drawn_;
};

}  // namespace

CallbackPtr ProgressBar(const ProgressBarOptions& options) {
  return std::make_shared<ProgressBarCallback>(options);
}

}  // namespace cohort::callbacks
