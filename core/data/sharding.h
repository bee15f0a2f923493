#pragma once

#include "core/data/source.h"
#include "core/distribute/input_options.h"

namespace cohort::data {

// What kAuto is for `num` pipelines of this source. For kFile, kNotFound where it reads no files,
// and kInvalidArgument where shares by file together would not be the whole. `by_steps`: elements
// are shared out below the last batch(n), so that what is above counts steps, the same in all
// shares.
AutoShardPolicy resolve_policy(const Source& source, AutoShardPolicy policy, int64_t num,
                               bool by_steps);

// Whether a DistributedSampler below has shared out rows among several ranks.
bool is_sampled(const Source& source);

// kInvalidArgument where kAuto leaves to pipeline `index` of `num` the rows that a
// DistributedSampler has given to another rank, or to one of another number of them, or beside them
// rows that every pipeline would read.
void require_own_rank(const Source& source, AutoShardPolicy policy, int64_t num, int64_t index);

// `source` as pipeline `index` reads what it has for itself: what has no seed draws otherwise on
// each pipeline, so that rows which are together on one are not on all.
SourcePtr read_by_one(SourcePtr source, int64_t index);

// `source` as every pipeline reads it, to keep a part: its elements come in the same order on all.
SourcePtr read_alike(SourcePtr source);

// The share of pipeline `index` of `num` in a source of elements, or of batches when
// `may_enter_batch`: then it is elements that are shared out. `policy` is resolved.
SourcePtr shard_source(const SourcePtr& source, AutoShardPolicy policy, int64_t num, int64_t index,
                       bool may_enter_batch);

// The source whose elements shard_source() shares out where `policy` is kData: what it and those
// below it yield has to come in the same order on all pipelines.
const Source& shared_elements(const Source& source, bool may_enter_batch);

}  // namespace cohort::data
