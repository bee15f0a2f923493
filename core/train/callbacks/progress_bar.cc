#include <chrono>
#include <iostream>
#include <unistd.h>

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
        live_(options.live.value_or(is_live_terminal(STDOUT_FILENO))) {}

  void on_epoch_begin(Training& training) override {
    if (!training.model().strategy().is_chief()) return;
    out_ << "Epoch " << training.epoch() + 1 << "/" << training.options().epochs << std::endl;
    drawn_ = Clock::now();
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
    if (training.interrupted() && live_) out_ << '\n';
    if (training.stopping())
      out_ << "Training ended early: " << training.stop_reason() << std::endl;
  }

 private:
  void draw(const Training& training, const Logs& logs, bool last) {
    const std::string line = progress_line({.step = training.step(),
                                            .steps = training.steps(),
                                            .seconds = training.seconds(),
                                            .examples = training.examples(),
                                            .values = logs});
    constexpr const char* kEraseRestOfLine = "\x1b[K";
    if (live_)
      out_ << '\r' << line << kEraseRestOfLine << (last ? "\n" : "") << std::flush;
    else
      out_ << line << std::endl;
  }

  std::ostream& out_;
  bool live_;
  Clock::time_point drawn_;
};

}  // namespace

CallbackPtr ProgressBar(const ProgressBarOptions& options) {
  return std::make_shared<ProgressBarCallback>(options);
}

}  // namespace cohort::callbacks
