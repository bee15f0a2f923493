#include "strategies/coordinator/worker_window.h"

#include <algorithm>

namespace cohort::coordinator {
namespace {

constexpr double kWindowUs = 4000;
constexpr size_t kMaxWindow = 1024;
// Results so far weigh this much against new ones.
constexpr double kMemory = 0.8;

}  // namespace

void WorkerWindow::learn(size_t count, uint64_t us) {
  const double each = static_cast<double>(us) / static_cast<double>(count);
  us_per_closure_ = us_per_closure_ > 0 ? kMemory * us_per_closure_ + (1 - kMemory) * each : each;
  closures_ = std::clamp(static_cast<size_t>(kWindowUs / std::max(us_per_closure_, 1.0)), size_t{1},
                         kMaxWindow);
}

}  // namespace cohort::coordinator
