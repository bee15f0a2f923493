#pragma once

#include <string>

#include "core/data/dataset.h"
#include "core/data/source.h"
#include "core/data/step_schedule.h"
#include "core/distribute/input_options.h"

namespace cohort::data {

// What `pipeline` reads of a dataset of global batches: for each step the rows of its replicas, in
// one batch. Unless the order is to be kept, the elements below batch(n) are divided, then batched
// by a StepSchedule; where that knows the number of steps, it comes about with batches of 0 rows if
// need be. Of one pipeline, all that the dataset has. Of independent ones, the batches are those of
// one; where a function makes them, each is divided nevertheless.
SourcePtr pipeline_batches(const Dataset& dataset, const InputOptions& options,
                           const Pipeline& pipeline);

// Whether only reading tells for how many steps the pipelines have rows, although the number of
// steps may be known: repeat() above batch(n) is endless, and take(n) ends it, whatever is below.
bool has_unknown_steps(const Source& batches);

// Whether all tensors have equally many rows.
bool is_batch(const Element& element);

// What the pipelines of a dataset have to have alike for that: "13 batches, batch(16) of 203
// elements, divided by element". Differences that only reading would show are not in it, nor which
// files there are where each reads its own (AutoShardPolicy::kOff).
std::string describe_batches(const Dataset& dataset, const InputOptions& options);

}  // namespace cohort::data
