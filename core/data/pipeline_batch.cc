#include "core/data/pipeline_batch.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/batch.h"
#include "core/data/sharding.h"

namespace cohort::data {
namespace {

Element without_rows(const Element& batch) {
  std::vector<Field> fields;
  for (const auto& [name, tensor] : batch)
    fields.push_back({name, Tensor(tensor.dtype(), tensor.shape().with_dim(0, 0))});
  return Element(std::move(fields));
}

class PipelineBatchStream : public Stream {
 public:
  // `whole` makes the global batches.
  PipelineBatchStream(std::unique_ptr<Stream> input, const StepSchedule& schedule,
                      const BatchSource& whole)
      : input_(std::move(input)), schedule_(schedule), whole_(whole) {}

  std::optional<Item> next() override {
    const int64_t steps = schedule_.steps();
    if (step_ == steps) {
      input_->skip(INT64_MAX);  // to its end, which a cache() below has to see
      return std::nullopt;
    }
    const int64_t size = schedule_.rows(step_);
    std::optional<Element> batch =
        read_batch(*input_, size, whole_.drop_remainder(), read_, whole_.padding());
    if (!batch && (size == 0 || steps != kUnknown)) batch = make_empty();
    if (!batch) return std::nullopt;
    if (empty_.empty()) empty_ = without_rows(*batch);
    ++step_;
    return Item{.element = *std::move(batch)};
  }
  Position save() const override {
    return {"pipeline_batch", {step_, read_, whole_.size()}, {input_->save()}};
  }
  void restore(const Position& position) override {
    position.expect("pipeline_batch", 3, 1);
    if (position.number(2) != whole_.size())
      fail(Code::kFailedPrecondition, "this position was saved with batch(", position.number(2),
           "); this pipeline has batch(", whole_.size(),
           "): the rows of its steps are counted otherwise");
    const int64_t steps = schedule_.steps();
    step_ = position.number(0, steps < 0 ? INT64_MAX : steps);
    read_ = position.number(1);
    input_->restore(position.inputs[0]);
  }

 private:
  // A pipeline that has not seen an element yet looks at what the others see. Nothing when there is
  // nothing at all.
  std::optional<Element> make_empty() {
    if (empty_.empty()) {
      std::optional<Item> other = whole_.open({})->next();
      if (!other) return std::nullopt;
      empty_ = without_rows(std::move(*other).make());
    }
    return empty_;
  }

  std::unique_ptr<Stream> input_;
  const StepSchedule& schedule_;
  const BatchSource& whole_;
  int64_t step_ = 0;
  int64_t read_ = 0;  // elements so far
  Element empty_;     // a batch of 0 rows, once one is known
};

class PipelineBatchSource : public Decorator<PipelineBatchSource> {
 public:
  PipelineBatchSource(SourcePtr input, StepSchedule schedule,
                      std::shared_ptr<const BatchSource> whole)
      : Decorator(std::move(input)), schedule_(std::move(schedule)), whole_(std::move(whole)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<PipelineBatchStream>(input().open(pass), schedule_, *whole_);
  }
  int64_t cardinality() const override { return schedule_.steps(); }
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  bool may_yield_batches() const override { return true; }

 private:
  StepSchedule schedule_;
  std::shared_ptr<const BatchSource> whole_;
};

// What `pipeline` has in the place of `whole`.
SourcePtr share_batch(const std::shared_ptr<const BatchSource>& whole, AutoShardPolicy policy,
                      const Pipeline& pipeline) {
  const SourcePtr elements = whole->inputs()[0];
  const auto share = [&](int index) {
    return read_by_one(
        shard_source(elements, policy, pipeline.count, index, /*may_enter_batch=*/false), index);
  };
  std::vector<int64_t> counts;
  for (int index = 0; index < pipeline.count; ++index)
    counts.push_back(share(index)->cardinality());
  const int64_t rows = whole->size() * (pipeline.independent ? pipeline.count : 1);
  return std::make_shared<PipelineBatchSource>(
      share(pipeline.index),
      StepSchedule(rows, whole->drop_remainder(), pipeline, std::move(counts)), whole);
}

std::string_view in_words(AutoShardPolicy policy) {
  switch (policy) {
    case AutoShardPolicy::kAuto:
      return "by file or element";
    case AutoShardPolicy::kFile:
      return "by file";
    case AutoShardPolicy::kData:
      return "by element";
    case AutoShardPolicy::kOff:
      break;
  }
  return "not at all";
}

// `source` with the last batch(n) on each path replaced.
SourcePtr share_batches(const SourcePtr& source, AutoShardPolicy policy, const Pipeline& pipeline) {
  if (const auto batch = std::dynamic_pointer_cast<const BatchSource>(source))
    return share_batch(batch, policy, pipeline);
  std::vector<SourcePtr> inputs = source->inputs();
  for (SourcePtr& input : inputs) input = share_batches(input, policy, pipeline);
  return source->with_share(
      inputs, str("steps ", pipeline.index, " of ", pipeline.count, " with ", pipeline.replicas,
                  pipeline.independent ? " replicas each, " : " replicas, ", in_words(policy)));
}

// Each pipeline reads all batches and keeps its rows: the only way where a function makes them, or
// where the order of rows matters. What turns out to be no batch stays whole, for whoever splits it
// over replicas to refuse: here a map() would be blamed that is not the user's.
Dataset share_rows(const Dataset& dataset, const Pipeline& pipeline) {
  return Dataset(read_alike(dataset.source())).map([pipeline](const Element& batch) {
    if (!is_batch(batch)) return batch;
    const auto parts = rebatch_sizes(batch.rows(), 1, pipeline.count * pipeline.replicas, 0);
    const auto first = parts.begin() + pipeline.index * pipeline.replicas;
    const int64_t begin = std::accumulate(parts.begin(), first, int64_t{0});
    const int64_t end = std::accumulate(first, first + pipeline.replicas, begin);
    std::vector<Field> fields;
    for (const auto& [name, tensor] : batch)
      fields.push_back({name, tensor.slice_rows(begin, end)});
    return Element(std::move(fields));
  });
}

// kInvalidArgument where a DistributedSampler has shared out rows otherwise than `pipeline` is to
// read them.
void require_sampler_of(const Dataset& dataset, const InputOptions& options,
                        const Pipeline& pipeline) {
  const Source& source = *dataset.source();
  if (!is_sampled(source)) return;
  constexpr std::string_view kSharedOut =
      "a DistributedSampler has shared out the rows of this dataset, ";
  if (options.keep_order)
    invalid(kSharedOut, "and here every pipeline is to read all of them, in their order");
  require_own_rank(source, options.auto_shard, pipeline.count, pipeline.index);
  if (options.auto_shard == AutoShardPolicy::kAuto && !dataset.batch_size())
    invalid(kSharedOut,
            "whose batches a function makes: batch with batch(n), or give the dataset to "
            "distribute_datasets_from_function");
}

std::string counted(int64_t count, std::string_view of) {
  if (count >= 0) return str(count, " ", of);
  return str(count == kInfinite ? "endless " : "uncounted ", of);
}

// Each of the batch(n) that share_batches() replaces.
void add_batches(const Source& source, std::string& text) {
  if (const auto* batch = dynamic_cast<const BatchSource*>(&source)) {
    text += str(", batch(", batch->size(), batch->drop_remainder() ? ", drop" : "", ") of ",
                counted(batch->inputs()[0]->cardinality(), "elements"));
    return;
  }
  for (const SourcePtr& input : source.inputs()) add_batches(*input, text);
}

// All that the pipelines choose from, each by itself: in another list they would leave files out.
void add_files(const Source& source, std::string& text) {
  if (const std::vector<std::string>* files = source.files())
    text += str(", ", files->size(),
                " files (checksum of their names, in order: ", source.files_checksum(), ")");
  for (const SourcePtr& input : source.inputs()) add_files(*input, text);
}

std::string_view division(const Source& source, const InputOptions& options) {
  if (options.keep_order) return "in their order";
  if (options.auto_shard == AutoShardPolicy::kOff)
    return "not at all, for which each worker needs as many of its own: by take(n) below batch(), "
           "or any number, in a loop of one's own, by distribute_datasets_from_function";
  return options.auto_shard == AutoShardPolicy::kAuto && is_sampled(source)
             ? "by a DistributedSampler"
             : in_words(options.auto_shard);
}

}  // namespace

SourcePtr pipeline_batches(const Dataset& dataset, const InputOptions& options,
                           const Pipeline& pipeline) {
  const AutoShardPolicy policy = options.auto_shard;
  if (options.keep_order && (pipeline.count == 1 || pipeline.independent))
    return read_alike(dataset.source());
  if (pipeline.count == 1) return dataset.source();
  if (pipeline.independent && policy == AutoShardPolicy::kOff)
    return read_by_one(dataset.source(), pipeline.index);
  require_sampler_of(dataset, options, pipeline);
  if (options.keep_order) return share_rows(dataset, pipeline).source();
  if (dataset.batch_size())
    return share_batches(
        dataset.source(),
        resolve_policy(*dataset.source(), policy, pipeline.count, /*by_steps=*/true), pipeline);
  if (policy == AutoShardPolicy::kFile || policy == AutoShardPolicy::kOff)
    invalid(
        "the batches of this dataset are made by a function, or a transformation has to see whole "
        "ones, so only their rows can be divided over ",
        pipeline.count,
        " pipelines: choose AutoShardPolicy::kAuto or kData, or batch with batch(n)");
  return share_rows(dataset, pipeline).source();
}

bool has_unknown_steps(const Source& batches) {
  if (dynamic_cast<const PipelineBatchSource*>(&batches) != nullptr)
    return batches.cardinality() == kUnknown;
  const std::vector<SourcePtr> inputs = batches.inputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [](const SourcePtr& input) { return has_unknown_steps(*input); });
}

bool is_batch(const Element& element) {
  return std::ranges::all_of(element, [&](const Field& field) {
    const Shape& shape = field.tensor.shape();
    return shape.rank() > 0 && shape[0] == element.fields().front().tensor.shape()[0];
  });
}

std::string describe_batches(const Dataset& dataset, const InputOptions& options) {
  std::string text = counted(dataset.cardinality(), "batches");
  add_batches(*dataset.source(), text);
  if (options.keep_order || options.auto_shard != AutoShardPolicy::kOff)
    add_files(*dataset.source(), text);
  return str(text, ", divided ", division(*dataset.source(), options));
}

}  // namespace cohort::data
