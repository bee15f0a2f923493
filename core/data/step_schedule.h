#pragma once

#include <cstdint>
#include <vector>

namespace cohort::data {

// One of several input pipelines, each of which feeds `replicas` replicas.
struct Pipeline {
  int count = 1;
  int index = 0;
  int replicas = 1;
  bool independent = false;  // InputContext::independent
};

// How many rows of its own elements a pipeline takes at each step, so that all pipelines together
// take a global batch. As long as all can, they follow rebatch_sizes(); then what is left to them
// is spread evenly over as few steps as it takes, so all pipelines end with the same step, and no
// step is without rows.
class StepSchedule {
 public:
  // `elements` is the cardinality of each pipeline's elements, as far as that is known. With
  // `drop_remainder`, there are only steps of `batch` rows.
  StepSchedule(int64_t batch, bool drop_remainder, const Pipeline& pipeline,
               std::vector<int64_t> elements);

  // A count, kInfinite, or kUnknown: then a pipeline ends with its own elements.
  int64_t steps() const { return steps_; }
  int64_t rows(int64_t step) const;

 private:
  std::vector<int64_t> sizes_;  // of the full steps; repeats
  int64_t steps_;
  int64_t full_steps_;
  // The steps after the full ones: the rows of all together, and which of the steps is the first to
  // have one row more.
  int64_t last_rows_ = 0, last_offset_ = 0;
};

}  // namespace cohort::data
