#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/stage.h"
#include "core/distribute/input_options.h"
#include "core/distribute/workers.h"

namespace cohort::data {

// What of `dataset` has to be alike on `pipelines` of them, those below first, or elements would be
// read by several and by none. Where elements are divided, it is all that decides on their order up
// to there, and the counts of what is above (take, skip, shard, repeat); each pipeline may have
// shuffles of its own above. Where batches are cut, it is everything; where a DistributedSampler
// has shared out the rows, the list that it has done so by; where pipelines read files of their own
// that this is so, and the counts; and nothing with AutoShardPolicy::kOff.
std::vector<Stage> common_stages(const Dataset& dataset, const InputOptions& options,
                                 int pipelines);

// For the other workers, and back; kDataLoss for anything else.
std::string pack_stages(const std::vector<Stage>& stages);
std::vector<Stage> unpack_stages(std::string_view bytes);

// kFailedPrecondition where those of two workers differ, by rank: names the first stage that does,
// both workers and what each has.
void require_same_stages(const Workers& workers, const std::vector<std::vector<Stage>>& of_worker);

}  // namespace cohort::data
