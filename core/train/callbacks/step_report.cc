#include <cmath>
#include <ostream>
#include <string>

#include "core/base/format_number.h"
#include "core/base/notice.h"
#include "core/train/callbacks.h"
#include "core/train/training.h"

namespace cohort::callbacks {
namespace {

// "14.2 ms", "0.35 ms".
std::string milliseconds(double seconds) {
  const double ms = 1e3 * seconds;
  return format_number(ms, std::chars_format::fixed, ms < 10 ? 2 : 1) + " ms";
}

std::string percent(double share) { return str(std::lround(100 * share), " %"); }

std::string line_of(int64_t epoch, const StepShares& shares, const Workers& workers) {
  std::string line = str("epoch ", epoch + 1, ": step ", milliseconds(shares.seconds), ": ",
                         shares.communication ? "compute " : "compute and communication ",
                         percent(shares.compute), ", input ", percent(shares.input));
  if (shares.communication) line += ", communication " + percent(*shares.communication);
  for (size_t r = 0; r < shares.for_worker.size(); ++r)
    if (std::lround(100 * shares.for_worker[r]) > 0)
      line += str(", waiting for ", workers.name(static_cast<int>(r)), " ",
                  percent(shares.for_worker[r]));
  return line + "\n";
}

class StepReportCallback : public Callback {
 public:
  explicit StepReportCallback(const StepReportOptions& options) : out_(options.out) {}

  void on_epoch_end(Training& training, Logs& /*logs*/) override {
    const Strategy& strategy = training.model().strategy();
    if (!strategy.is_chief()) return;
    const std::string line = line_of(training.epoch(), training.step_shares(), strategy.workers());
    if (out_ == nullptr)
      print_notice(line);
    else
      *out_ << line << std::flush;
  }

 private:
  std::ostream* const out_;
};

}  // namespace

CallbackPtr StepReport(const StepReportOptions& options) {
  return std::make_shared<StepReportCallback>(options);
}

}  // namespace cohort::callbacks
