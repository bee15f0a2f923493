#include "core/data/auto_shard.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"
#include "core/data/batch.h"
#include "core/data/sharding.h"

namespace cohort::data {
namespace {

bool reads_files(const Source& source) {
  if (source.files()) return true;
  const auto inputs = source.inputs();
  return std::any_of(inputs.begin(), inputs.end(), [](const auto& i) { return reads_files(*i); });
}

// The number of files that may be shared out without changing what all shares together are.
size_t files_to_share(const Source& source) {
  if (source.files()) return source.files()->size();
  if (source.shard_below() == ShardBelow::kNothing) return 0;
  return files_to_share(*source.inputs()[0]);
}

bool is_batch(const Source& source) { return dynamic_cast<const BatchSource*>(&source) != nullptr; }

// How many files each path below `source` ends in, where kFile's shares together are the whole.
// `by_steps` as for resolve_policy().
std::optional<size_t> files_of_each_path(const Source& source, bool by_steps) {
  if (source.files()) return source.files()->size();
  const std::vector<SourcePtr> inputs = source.inputs();
  if (is_batch(source)) by_steps = false;
  if (inputs.size() == 1 && source.shard_below() == ShardBelow::kNothing && !by_steps)
    return std::nullopt;
  std::optional<size_t> count;
  for (const SourcePtr& input : inputs) {
    const std::optional<size_t> here = files_of_each_path(*input, by_steps);
    if (!here || (count && *count != *here)) return std::nullopt;
    count = here;
  }
  return count;
}

SourcePtr share_files(const SourcePtr& source, int64_t num, int64_t index) {
  if (const std::vector<std::string>* files = source->files()) {
    std::vector<std::string> mine;
    for (auto i = static_cast<size_t>(index); i < files->size(); i += static_cast<size_t>(num))
      mine.push_back((*files)[i]);
    return source->with_files(std::move(mine));
  }
  std::vector<SourcePtr> inputs = source->inputs();
  if (inputs.empty()) return source;
  for (SourcePtr& input : inputs) input = share_files(input, num, index);
  return source->with_share(inputs, str("files ", index, " of ", num));
}

// Whether elements can be shared out below `source`: never below a second batch, whose elements
// are batches that each share would fill differently.
bool is_above_elements(const Source& source, bool may_enter_batch) {
  return source.shard_below() == ShardBelow::kElements && (may_enter_batch || !is_batch(source));
}

SourcePtr share_elements(const SourcePtr& source, int64_t num, int64_t index,
                         bool may_enter_batch) {
  if (!is_above_elements(*source, may_enter_batch))
    return Dataset(read_alike(source)).shard(num, index).source();
  const bool may_enter_next = may_enter_batch && !is_batch(*source);
  const bool may_enter_one_below = may_enter_batch && source->batch_size();
  return source->with_share(
      {share_elements(source->inputs()[0], num, index, may_enter_next)},
      str(may_enter_one_below ? "elements of batches " : "elements ", index, " of ", num));
}

void require_rank_of_each(const Source& source, int64_t num, int64_t index) {
  for (const SourcePtr& input : source.inputs()) require_rank_of_each(*input, num, index);
  const std::optional<SamplerRank> sampled = source.sampler_rank();
  if (!sampled || (sampled->rank == index && sampled->num_replicas == num)) return;
  invalid("the rows of this dataset are those that a DistributedSampler gives rank ", sampled->rank,
          " of ", sampled->num_replicas, ", but pipeline ", index, " of ", num,
          " is to read them: it needs rank ", index, " of num_replicas = ", num,
          "; without a sampler, rows are divided over the pipelines anyway");
}

void collect_files(const Source& source, std::vector<std::string>& files) {
  if (source.files()) files.insert(files.end(), source.files()->begin(), source.files()->end());
  for (const SourcePtr& input : source.inputs()) collect_files(*input, files);
}

std::string describe_files(const SourcePtr& source, int64_t num) {
  std::string text = "by file:";
  for (int64_t index = 0; index < num; ++index) {
    std::vector<std::string> files;
    collect_files(*share_files(source, num, index), files);
    text += str("\n  pipeline ", index, " of ", num, " reads ",
                files.empty() ? "nothing" : comma_separated(files));
  }
  return text;
}

std::string describe_elements(const SourcePtr& source, int64_t num) {
  const int64_t count = shared_elements(*source, /*may_enter_batch=*/true).cardinality();
  std::string text = str("by element: pipeline i of ", num, " reads elements i, i + ", num,
                         ", i + ", 2 * num, ", ...");
  if (count >= 0) text += str(" of ", count);
  if (count >= 0 && count < num) text += str("; pipelines from ", count, " on read nothing");
  return text;
}

}  // namespace

bool is_sampled(const Source& source) {
  return source.sampler_rank() ||
         std::ranges::any_of(source.inputs(), [](const auto& input) { return is_sampled(*input); });
}

AutoShardPolicy resolve_policy(const Source& source, AutoShardPolicy policy, int64_t num,
                               bool by_steps) {
  if (policy == AutoShardPolicy::kAuto) {
    if (is_sampled(source)) return AutoShardPolicy::kOff;
    return files_to_share(source) >= static_cast<size_t>(num) ? AutoShardPolicy::kFile
                                                              : AutoShardPolicy::kData;
  }
  if (policy != AutoShardPolicy::kFile) return policy;
  if (!reads_files(source))
    fail(Code::kNotFound,
         "this dataset cannot be divided by file, because it reads none: only data::from_files() "
         "does; AutoShardPolicy::kData divides it by element");
  if (!files_of_each_path(source, by_steps))
    invalid(
        "this dataset cannot be divided by file: the parts would not be the whole, as the files "
        "are below take(), skip() or shard(), or in a zip(), concatenate() or sample_from() of "
        "datasets that do not all read equally many files; AutoShardPolicy::kAuto and kData divide "
        "it by element");
  return policy;
}

void require_own_rank(const Source& source, AutoShardPolicy policy, int64_t num, int64_t index) {
  if (policy != AutoShardPolicy::kAuto || !is_sampled(source)) return;
  require_rank_of_each(source, num, index);
  if (!source.is_share())
    invalid("a DistributedSampler has shared out some rows of this dataset, and every one of ", num,
            " pipelines would read all others: share these out, too, by shard(", num, ", ", index,
            ") on this one, or use no sampler: rows are divided over the pipelines anyway");
}

SourcePtr shard_source(const SourcePtr& source, AutoShardPolicy policy, int64_t num, int64_t index,
                       bool may_enter_batch) {
  if (num == 1 || policy == AutoShardPolicy::kOff) return source;
  return policy == AutoShardPolicy::kFile ? share_files(source, num, index)
                                          : share_elements(source, num, index, may_enter_batch);
}

const Source& shared_elements(const Source& source, bool may_enter_batch) {
  if (!is_above_elements(source, may_enter_batch)) return source;
  return shared_elements(*source.inputs()[0], may_enter_batch && !is_batch(source));
}

Dataset auto_shard(const Dataset& dataset, AutoShardPolicy policy, int64_t num, int64_t index) {
  if (num < 1 || index < 0 || index >= num)
    invalid("auto_shard(): there is no pipeline ", index, " among ", num);
  if (num == 1) return dataset;
  require_own_rank(*dataset.source(), policy, num, index);
  policy = resolve_policy(*dataset.source(), policy, num, /*by_steps=*/false);
  const SourcePtr share =
      shard_source(dataset.source(), policy, num, index, /*may_enter_batch=*/true);
  return Dataset(read_by_one(share, index));
}

std::string describe_sharding(const Dataset& dataset, AutoShardPolicy policy, int64_t num) {
  if (num < 1) invalid("describe_sharding(): ", num, " pipelines; there has to be at least 1");
  if (num == 1) return "not at all: the only pipeline reads everything";
  if (policy == AutoShardPolicy::kAuto && is_sampled(*dataset.source()))
    return "not at all: each pipeline reads the rows that a DistributedSampler gives its rank";
  policy = resolve_policy(*dataset.source(), policy, num, /*by_steps=*/false);
  if (policy == AutoShardPolicy::kOff)
    return str("not at all: each of ", num, " pipelines reads everything");
  return policy == AutoShardPolicy::kFile ? describe_files(dataset.source(), num)
                                          : describe_elements(dataset.source(), num);
}

}  // namespace cohort::data
