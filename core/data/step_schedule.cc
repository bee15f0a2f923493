#include "core/data/step_schedule.h"

#include <algorithm>
#include <numeric>

#include "core/data/dataset.h"
#include "core/distribute/input_options.h"

namespace cohort::data {
namespace {

// The rows of the replicas of pipeline `index` together, for the steps of one rotation.
std::vector<int64_t> full_sizes(int64_t batch, const Pipeline& pipeline, int index) {
  const auto parts = rebatch_sizes(batch, pipeline.count, pipeline.replicas, index);
  std::vector<int64_t> sizes;
  for (auto part = parts.begin(); part != parts.end(); part += pipeline.replicas)
    sizes.push_back(std::accumulate(part, part + pipeline.replicas, int64_t{0}));
  return sizes;
}

// How many steps of these sizes `elements` fill.
int64_t filled_steps(int64_t elements, const std::vector<int64_t>& sizes) {
  const int64_t rotation = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  int64_t steps = elements / rotation * static_cast<int64_t>(sizes.size());
  int64_t left = elements % rotation;
  for (const int64_t size : sizes) {
    if (left < size) break;
    left -= size;
    ++steps;
  }
  return steps;
}

// What `sizes` add up to over the first `steps` steps.
int64_t rows_of_steps(int64_t steps, const std::vector<int64_t>& sizes) {
  const auto count = static_cast<int64_t>(sizes.size());
  return steps / count * std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) +
         std::accumulate(sizes.begin(), sizes.begin() + steps % count, int64_t{0});
}

// The sum of cardinalities.
int64_t total(const std::vector<int64_t>& elements) {
  if (std::count(elements.begin(), elements.end(), kUnknown) > 0) return kUnknown;
  int64_t sum = 0;
  for (const int64_t n : elements)
    if (n == kInfinite || __builtin_add_overflow(sum, n, &sum)) return kInfinite;
  return sum;
}

}  // namespace

StepSchedule::StepSchedule(int64_t batch, bool drop_remainder, const Pipeline& pipeline,
                           std::vector<int64_t> elements)
    : sizes_(full_sizes(batch, pipeline, pipeline.index)),
      steps_(total(elements)),
      full_steps_(INT64_MAX) {
  if (steps_ < 0) return;
  int64_t remainder = steps_ % batch;
  steps_ = steps_ / batch + (remainder > 0 && !drop_remainder ? 1 : 0);
  for (int i = 0; i < pipeline.count; ++i)
    full_steps_ = std::min(full_steps_, filled_steps(elements[i], full_sizes(batch, pipeline, i)));
  full_steps_ = std::min(full_steps_, steps_);
  if (full_steps_ == steps_) return;

  std::vector<int64_t>& left = elements;
  for (int i = 0; i < pipeline.count; ++i)
    left[i] -= rows_of_steps(full_steps_, full_sizes(batch, pipeline, i));
  for (; drop_remainder && remainder > 0; --remainder)
    --*std::max_element(left.begin(), left.end());
  last_rows_ = left[pipeline.index];
  // Where those of the pipelines before this one end.
  for (int i = 0; i < pipeline.index; ++i)
    last_offset_ = (last_offset_ + left[i]) % (steps_ - full_steps_);
}

int64_t StepSchedule::rows(int64_t step) const {
  if (step < full_steps_) return sizes_[static_cast<size_t>(step) % sizes_.size()];
  const int64_t steps = steps_ - full_steps_;
  const int64_t from_first = (step - full_steps_ - last_offset_ + steps) % steps;
  return last_rows_ / steps + (from_first < last_rows_ % steps ? 1 : 0);
}

}  // namespace cohort::data
