#include "core/data/common_stages.h"

#include <algorithm>
#include <utility>

#include "core/data/batch.h"
#include "core/data/sharding.h"
#include "core/data/source.h"
#include "core/distribute/packing.h"

namespace cohort::data {
namespace {

// Gathers the stages of a pipeline, those below first.
class StageList {
 public:
  explicit StageList(const Source& pipeline) { pipeline.add_unseeded(unseeded_); }

  // Of everything here and below.
  void add_all(const Source& source) {
    for (const SourcePtr& input : source.inputs()) add_all(*input);
    std::optional<Stage> stage = source.stage(unseeded_);
    if (!stage) return;
    if (const auto sampled = source.sampler_rank())
      stage->share = str("rank ", sampled->rank, " of ", sampled->num_replicas);
    add(*std::move(stage));
  }

  // Of everything up to where elements are shared out, below the last batch(n) on each path; of
  // what is above, the counts.
  void add_up_to_shares(const Source& source) {
    if (dynamic_cast<const BatchSource*>(&source) != nullptr) {
      const Source& elements = *source.inputs()[0];
      add_counts_above(elements, shared_elements(elements, /*may_enter_batch=*/false));
      return;
    }
    for (const SourcePtr& input : source.inputs()) add_up_to_shares(*input);
    add_count(source);
  }

  // The counts alone.
  void add_counts(const Source& source) {
    for (const SourcePtr& input : source.inputs()) add_counts(*input);
    add_count(source);
  }

  // Of the sources that have shared out their rows.
  void add_sharing(const Source& source) {
    for (const SourcePtr& input : source.inputs()) add_sharing(*input);
    std::optional<Stage> stage = source.stage(unseeded_);
    if (stage && stage->role == Stage::Role::kShares) add(*std::move(stage));
  }

  void add(Stage stage) {
    const bool undoes_last = stage.role == Stage::Role::kUnstacks && !stages_.empty() &&
                             stages_.back().role == Stage::Role::kStacks;
    if (undoes_last)
      stages_.pop_back();
    else
      stages_.push_back(std::move(stage));
  }

  std::vector<Stage> take() && { return std::move(stages_); }

 private:
  void add_counts_above(const Source& source, const Source& shared) {
    if (&source == &shared) return add_all(source);
    add_counts_above(*source.inputs()[0], shared);
    add_count(source);
  }

  void add_count(const Source& source) {
    std::optional<Stage> stage = source.stage(unseeded_);
    if (stage && stage->role == Stage::Role::kCounts) add(*std::move(stage));
  }

  Unseeded unseeded_;
  std::vector<Stage> stages_;
};

const Stage& stage_or_end(const std::vector<Stage>& stages, size_t i) {
  static const Stage kEnd{.call = "nothing"};
  return i < stages.size() ? stages[i] : kEnd;
}

std::string describe_difference(const Workers& workers, const Stage& first, int other_rank,
                                const Stage& other) {
  const std::string self = workers.name(0), name = workers.name(other_rank);
  const std::string shard =
      str("by shard(", workers.size(), ", rank), with AutoShardPolicy::kOff and as many for each");
  if (first.call == other.call && first.share != other.share)
    return str(first.call, " gives ", self, " the rows of ", first.share, " and ", name,
               " those of ", other.share,
               ": AutoShardPolicy::kAuto leaves each the rows of its rank, undivided");
  if (first.call == other.call)
    return str(first.call, " draws by ", first.draws, " on ", self, " and by ", other.draws, " on ",
               name,
               ": give it the same seed on all, or none under the same global seed, or share ",
               "out the elements below it ", shard);
  return str(self, " has ", first.call, " where ", name, " has ", other.call,
             ": make the same dataset on all, or share out its elements ", shard);
}

}  // namespace

std::vector<Stage> common_stages(const Dataset& dataset, const InputOptions& options,
                                 int pipelines) {
  const Source& source = *dataset.source();
  const bool is_off = !options.keep_order && options.auto_shard == AutoShardPolicy::kOff;
  if (pipelines == 1 || is_off) return {};
  StageList list(source);
  if (options.keep_order || !dataset.batch_size()) {
    list.add_all(source);
    return std::move(list).take();
  }
  switch (resolve_policy(source, options.auto_shard, pipelines, /*by_steps=*/true)) {
    case AutoShardPolicy::kOff:
      list.add_sharing(source);
      break;
    case AutoShardPolicy::kFile:
      list.add({.call = "a division by file"});
      list.add_counts(source);
      break;
    case AutoShardPolicy::kAuto:
    case AutoShardPolicy::kData:
      list.add_up_to_shares(source);
      break;
  }
  return std::move(list).take();
}

std::string pack_stages(const std::vector<Stage>& stages) {
  Packer packer;
  for (const Stage& stage : stages) {
    packer.add(stage.call);
    packer.add(stage.draws);
    packer.add(stage.share);
  }
  return packer.bytes();
}

std::vector<Stage> unpack_stages(std::string_view bytes) {
  std::vector<Stage> stages;
  for (Unpacker unpacker(bytes); !unpacker.at_end();) {
    Stage& stage = stages.emplace_back();
    stage.call = unpacker.text();
    stage.draws = unpacker.text();
    stage.share = unpacker.text();
  }
  return stages;
}

void require_same_stages(const Workers& workers, const std::vector<std::vector<Stage>>& of_worker) {
  const std::vector<Stage>& first = of_worker.front();
  for (size_t rank = 1; rank < of_worker.size(); ++rank) {
    const std::vector<Stage>& other = of_worker[rank];
    if (other == first) continue;
    size_t i = 0;
    while (stage_or_end(first, i) == stage_or_end(other, i)) ++i;
    const int other_rank = static_cast<int>(rank);
    throw Error(Code::kFailedPrecondition,
                str("workers that divide a dataset need the same one in the same order, or some "
                    "elements are read twice and others never, but ",
                    describe_difference(workers, stage_or_end(first, i), other_rank,
                                        stage_or_end(other, i))),
                workers.name(other_rank));
  }
}

}  // namespace cohort::data
