#include "core/train/step_meter.h"

#include <algorithm>
#include <numeric>

namespace cohort {

using std::chrono::nanoseconds;

void StepMeter::add_input(const Moment& begin, const Moment& end) { input_ += add(begin, end); }

void StepMeter::add_run(const Moment& begin, const Moment& end) {
  add(begin, end);
  ++steps_;
}

nanoseconds StepMeter::add(const Moment& begin, const Moment& end) {
  const nanoseconds time = end.time - begin.time;
  total_ += time;
  if (!begin.waits || !end.waits) {
    sees_waits_ = false;
    return time;
  }
  // Another thread may have run steps of the same strategy meanwhile.
  const nanoseconds waited = std::clamp(end.waits->all - begin.waits->all, nanoseconds(0), time);
  waited_ += waited;
  for_worker_.resize(end.waits->for_worker.size());
  for (size_t r = 0; r < for_worker_.size(); ++r)
    for_worker_[r] += end.waits->for_worker[r] - begin.waits->for_worker[r];
  return time - waited;
}

StepShares StepMeter::shares() const {
  StepShares shares;
  if (steps_ == 0 || total_.count() <= 0) return shares;
  const auto share = [&](nanoseconds time) {
    return static_cast<double>(time.count()) / static_cast<double>(total_.count());
  };
  shares.steps = steps_;
  shares.seconds = std::chrono::duration<double>(total_).count() / static_cast<double>(steps_);
  shares.input = share(input_);
  // What is found out in the first step, of the one before the epoch, may be more than all waits.
  const nanoseconds late = std::accumulate(for_worker_.begin(), for_worker_.end(), nanoseconds(0));
  const double scale =
      late > waited_ ? static_cast<double>(waited_.count()) / static_cast<double>(late.count()) : 1;
  for (const nanoseconds time : for_worker_) shares.for_worker.push_back(share(time) * scale);
  if (sees_waits_) shares.communication = share(waited_ - std::min(late, waited_));
  shares.compute = share(total_ - input_ - waited_);
  return shares;
}

}  // namespace cohort
