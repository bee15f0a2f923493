#pragma once

#include "core/data/source.h"
#include "core/distribute/input_options.h"

namespace cohort::data {

// What kAuto is for `num` pipelines of this source. kNotFound for kFile and a source that reads no
// files.
AutoShardPolicy resolve_policy(const Source& source, AutoShardPolicy policy, int64_t num);

// kInvalidArgument where kAuto leaves to pipeline `index` of `num` the rows that a
// DistributedSampler has given to another rank, or to one of another number of them.
void require_own_rank(const Source& source, AutoShardPolicy policy, int64_t num, int64_t index);

// `source` as pipeline `index` reads what it has for itself: shuffles without seeds draw another
// order on each pipeline, so that rows which are together on one are not on all.
SourcePtr read_by_one(SourcePtr source, int64_t index);

// `source` as every pipeline reads it, to keep a part: its elements come in the same order on all.
SourcePtr read_alike(SourcePtr source);

// The share of pipeline `index` of `num` in a source of elements, or of batches when
// `may_enter_batch`: then it is elements that are shared out. `policy` is resolved.
SourcePtr shard_source(const SourcePtr& source, AutoShardPolicy policy, int64_t num, int64_t index,
                       bool may_enter_batch);

}  // namespace cohort::data
