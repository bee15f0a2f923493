#pragma once

#include <cstdint>
#include <string>

#include "core/data/dataset.h"
#include "core/distribute/input_options.h"

namespace cohort::data {

// The part of `dataset` that pipeline `index` of `num` reads. The parts are disjoint, and together
// they are the whole; with kOff each is the whole. Of one pipeline, it is the dataset itself.
// By file, every from_files() of the dataset reads files index, index + num, ...; pipelines beyond
// the number of files get nothing. kNotFound when there is none; kInvalidArgument where the parts
// would not be the whole, since the files are below take, skip or shard, or in a zip, concatenate
// or sample_from of datasets that do not all read equally many.
// By element, it has elements index, index + num, ... They are chosen as far below shuffles,
// batches, repeats and maps as it makes no difference which elements there are, so that a pipeline
// makes only its own; each pipeline shuffles and batches these. But they are chosen after a filter,
// take, take_while, skip, unbatch, window, interleave, concatenate or sample_from.
// Shuffles and sample_from without seeds draw otherwise on each pipeline, but alike where elements
// are chosen after them. A shuffle with a seed puts equally long shares in the same order.
// kAuto goes by file where there is one for each pipeline, and the files are below nothing but
// transformations that are blind to the rest of the dataset: not below take, take_while, skip,
// shard, window, zip, concatenate and sample_from.
// Where a DistributedSampler has shared out the rows already, nothing is divided, and its rank and
// num_replicas have to be `index` and `num` (kInvalidArgument). kInvalidArgument unless
// 0 <= index < num.
Dataset auto_shard(const Dataset& dataset, AutoShardPolicy policy, int64_t num, int64_t index);

// Who reads what of `dataset` under auto_shard(), for people to read. kInvalidArgument without a
// pipeline.
std::string describe_sharding(const Dataset& dataset, AutoShardPolicy policy, int64_t num);

}  // namespace cohort::data
