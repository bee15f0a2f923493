#include "core/data/distributed_dataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/data/common_stages.h"
#include "core/data/pipeline_batch.h"
#include "core/data/read_ahead.h"
#include "core/data/source.h"
#include "core/device/device_fetcher.h"
#include "core/distribute/packing.h"

namespace cohort::data {

struct Distribution {
  // How the batches of `source` become steps.
  enum class Kind {
    kSplit,  // each is one step, split over the replicas
    kDeal    // each is one replica's
  };
  SourcePtr source;
  SourcePtr dataset;  // the user's, which `source` may be rewritten from: it counts the passes
  Kind kind;
  std::vector<Device> devices;  // of this process's replicas
  int64_t prefetch;
  Workers& workers;  // who are told of errors
  bool must_agree;   // on which steps have rows, which is not known beforehand
};

namespace {

void require_no_trace(std::string_view what) {
  if (has_current_graph())
    fail(Code::kFailedPrecondition, what, " cannot be called inside a ",
         get_replica_context() != nullptr ? "replica" : "function that is being traced",
         ": it is traced once, and would keep what it saw then; give the batch to Strategy::run");
}

std::string_view add_batch(Distribution::Kind kind) {
  return kind == Distribution::Kind::kSplit
             ? " are no batches: add batch(n), with the rows of all replicas together, to the "
               "dataset"
             : " are no batches: add batch(n), with the rows of one replica, to the dataset";
}

void require_batches(const Dataset& dataset, Distribution::Kind kind) {
  if (!dataset.source()->may_yield_batches())
    invalid("the elements of this dataset", add_batch(kind));
}

int64_t rows_of(const Batch& batch, Distribution::Kind kind) {
  if (!is_batch(batch))
    invalid("the elements ", batch, ", whose tensors have not all as many rows,", add_batch(kind));
  return batch.rows();
}

Batch slice(const Batch& batch, int64_t begin, int64_t end) {
  std::vector<Field> fields;
  for (const auto& [name, tensor] : batch) fields.push_back({name, tensor.slice_rows(begin, end)});
  return Batch(std::move(fields));
}

DistributedBatch split(const Batch& batch, size_t replicas) {
  const int64_t rows = rows_of(batch, Distribution::Kind::kSplit);
  const auto sizes = split_rows(rows, static_cast<int>(replicas));
  DistributedBatch parts(replicas);
  int64_t begin = 0;
  for (size_t r = 0; r < replicas; begin += sizes[r++])
    parts[r] = slice(batch, begin, begin + sizes[r]);
  return parts;
}

// Gives replicas on devices with memory of their own their batches there.
class Fetchers {
 public:
  explicit Fetchers(const std::vector<Device>& devices)
      : devices_(devices), fetchers_(devices.size()) {}

  DistributedBatch fetch(DistributedBatch batch) {
    for (size_t r = 0; r < devices_.size(); ++r) {
      if (device_backend(devices_[r].type).shares_host_memory()) continue;
      if (fetchers_[r] == nullptr) fetchers_[r] = std::make_unique<DeviceFetcher>(devices_[r]);
      batch[r] = fetch(batch[r], *fetchers_[r]);
    }
    return batch;
  }

 private:
  static Batch fetch(const Batch& batch, DeviceFetcher& fetcher) {
    std::vector<Tensor> tensors;
    for (const Field& field : batch) tensors.push_back(field.tensor);
    tensors = fetcher.fetch(std::move(tensors));
    std::vector<Field> fields;
    for (size_t i = 0; i < tensors.size(); ++i)
      fields.push_back({batch.fields()[i].name, std::move(tensors[i])});
    return Batch(std::move(fields));
  }

  const std::vector<Device> devices_;
  std::vector<std::unique_ptr<DeviceFetcher>> fetchers_;  // by replica, where one is needed
};

// The steps of one pass.
class Steps {
 public:
  Steps(const Distribution& distribution, const Pass& pass)
      : kind_(distribution.kind),
        replicas_(distribution.devices.size()),
        fetchers_(distribution.devices),
        batches_(distribution.source->open(pass)) {
    if (distribution.prefetch > 0)
      ahead_.emplace([this] { return make_ahead(); }, [this] { return batches_->save(); },
                     distribution.prefetch);
  }

  std::optional<DistributedBatch> next() { return ahead_ ? ahead_->next() : make(); }
  Position save() const { return ahead_ ? ahead_->save() : batches_->save(); }
  // REQUIRES: fresh.
  void restore(const Position& position) { batches_->restore(position); }

 private:
  std::optional<DistributedBatch> make_ahead() {
    std::optional<DistributedBatch> batch = make();
    if (batch) batch = fetchers_.fetch(std::move(*batch));
    return batch;
  }

  std::optional<DistributedBatch> make() {
    return kind_ == Distribution::Kind::kSplit ? split_next() : deal_next();
  }

  std::optional<DistributedBatch> split_next() {
    std::optional<Item> item = batches_->next();
    if (!item) return std::nullopt;
    return split(std::move(*item).make(), replicas_);
  }

  std::optional<DistributedBatch> deal_next() {
    DistributedBatch dealt(replicas_);
    for (size_t r = 0; r < replicas_; ++r) {
      std::optional<Item> item = batches_->next();
      if (!item && r == 0) return std::nullopt;
      dealt[r] = item ? std::move(*item).make() : slice(dealt[0], 0, 0);
      rows_of(dealt[r], kind_);  // throws for elements that are no batches
    }
    return dealt;
  }

  const Distribution::Kind kind_;
  const size_t replicas_;
  Fetchers fetchers_;                                 // of the background thread
  std::unique_ptr<Stream> batches_;                   // of the background thread, once it runs
  std::optional<ReadAhead<DistributedBatch>> ahead_;  // last: its thread uses what is above
};

// Batches of no rows with these names, dtypes and shapes of rows.
DistributedBatch without_rows(const Batch& like, size_t replicas) {
  return DistributedBatch(std::vector<Batch>(replicas, slice(like, 0, 0)));
}

// One in memory of its own, so that it keeps no other batch's.
Batch empty(const Batch& like) {
  std::vector<Field> fields;
  for (const auto& [name, tensor] : like) fields.push_back({name, tensor.slice_rows(0, 0).clone()});
  return Batch(std::move(fields));
}

std::string pack(const Batch& batch) {
  Packer packer;
  for (const auto& [name, tensor] : batch) {
    packer.add(name);
    packer.add(tensor);
  }
  return packer.bytes();
}

Batch unpack(std::string_view bytes) {
  std::vector<Field> fields;
  for (Unpacker unpacker(bytes); !unpacker.at_end();) {
    std::string name = unpacker.text();
    fields.push_back({std::move(name), unpacker.tensor()});
  }
  return Batch(std::move(fields));
}

// Lets all workers take the same steps: those that any of them has rows for.
class Agreement {
 public:
  explicit Agreement(Workers& workers) : workers_(workers) {}

  // The next step for which `make_own` has rows on some worker. What has rows on none is no step: a
  // pipeline that is to have no row at a step does not know that those that were to have some are
  // at their end.
  template <typename MakeOwn>
  std::optional<DistributedBatch> next(const MakeOwn& make_own, size_t replicas) {
    for (;;) {
      std::optional<DistributedBatch> own = make_own();
      if (own && !empty_) empty_ = empty((*own)[0]);
      const auto said = workers_.exchange("the next batch", describe(own));
      const auto at = [&](std::string_view what) {
        return std::find(said.begin(), said.end(), what);
      };
      const auto first = at(kRows);
      if (first == said.end()) {
        if (at(kNoRows) == said.end()) return std::nullopt;
        continue;
      }
      // Who has had no batch learns from others what they look like.
      if (at(kNothingYet) != said.end()) {
        const auto shown = workers_.exchange("what batches look like", own ? pack(*empty_) : "");
        if (!empty_) empty_ = unpack(shown[static_cast<size_t>(first - said.begin())]);
      }
      return own ? std::move(own) : without_rows(*empty_, replicas);
    }
  }

 private:
  static constexpr std::string_view kRows = "rows", kNoRows = "no rows", kEnd = "the end",
                                    kNothingYet = "nothing yet";

  std::string_view describe(const std::optional<DistributedBatch>& own) const {
    if (own) return own->rows() > 0 ? kRows : kNoRows;
    return empty_ ? kEnd : kNothingYet;
  }

  Workers& workers_;
  std::optional<Batch> empty_;  // a batch of 0 rows, once one is known
};

}  // namespace

int64_t DistributedBatch::rows() const {
  int64_t total = 0;
  for (const Batch& batch : *this) total += batch.rows();
  return total;
}

struct DistributedIterator::State {
  std::shared_ptr<const Distribution> distribution;
  bool is_counted;  // among the passes of the dataset
  uint64_t epoch;
  std::optional<Agreement> agreement;
  Steps steps;  // last: it refers to the distribution's source

  State(std::shared_ptr<const Distribution> d, bool counted, uint64_t e)
      : distribution(std::move(d)),
        is_counted(counted),
        epoch(e),
        steps(*distribution, {.epoch = epoch}) {
    if (distribution->must_agree) agreement.emplace(distribution->workers);
  }
};

DistributedIterator::DistributedIterator(const std::shared_ptr<const Distribution>& distribution,
                                         const IterateOptions& options)
    : state_(std::make_unique<State>(
          distribution, !options.epoch,
          options.epoch ? *options.epoch : distribution->dataset->count_pass())) {}
DistributedIterator::DistributedIterator(DistributedIterator&&) noexcept = default;
DistributedIterator& DistributedIterator::operator=(DistributedIterator&&) noexcept = default;
DistributedIterator::~DistributedIterator() = default;

std::optional<DistributedBatch> DistributedIterator::next() {
  require_no_trace("next() of a distributed dataset");
  // The others may not be in the same call, but wait for this worker in a later one.
  const auto make_own = [&] {
    return together(state_->distribution->workers, [&] { return state_->steps.next(); });
  };
  if (!state_->agreement) return make_own();
  return state_->agreement->next(make_own, state_->distribution->devices.size());
}

uint64_t DistributedIterator::epoch() const { return state_->epoch; }

std::string DistributedIterator::save() const {
  return to_json({"iterator", {static_cast<int64_t>(state_->epoch)}, {state_->steps.save()}});
}

void DistributedIterator::restore(std::string_view text) {
  state_ = together(state_->distribution->workers, [&] {
    const Position position = position_from_json(text);
    position.expect("iterator", 1, 1);
    auto state = std::make_unique<State>(state_->distribution, state_->is_counted,
                                         static_cast<uint64_t>(position.numbers[0]));
    state->steps.restore(position.inputs[0]);
    return state;
  });
  if (state_->is_counted) state_->distribution->dataset->count_passes_from(state_->epoch + 1);
}

DistributedDataset::DistributedDataset(std::shared_ptr<const Distribution> distribution)
    : distribution_(std::move(distribution)) {}

DistributedIterator DistributedDataset::iterate(IterateOptions options) const {
  require_no_trace("iterate() of a distributed dataset");
  // To open a source may be to call a function of the user's, as a generator's is.
  return together(distribution_->workers,
                  [&] { return DistributedIterator(distribution_, options); });
}

PassIterator<DistributedIterator, DistributedBatch> DistributedDataset::begin() const {
  return PassIterator<DistributedIterator, DistributedBatch>(iterate());
}

int64_t DistributedDataset::cardinality() const {
  const int64_t batches = distribution_->source->cardinality();
  if (batches < 0 || distribution_->kind == Distribution::Kind::kSplit) return batches;
  if (distribution_->workers.size() > 1) return kUnknown;  // others may have more of their own
  const auto replicas = static_cast<int64_t>(distribution_->devices.size());
  return batches / replicas + (batches % replicas > 0 ? 1 : 0);
}

}  // namespace cohort::data

namespace cohort {
namespace {

int64_t checked_prefetch(const InputOptions& options) {
  if (options.prefetch < 0)
    invalid("InputOptions: prefetch is ", options.prefetch, "; give a number of steps, or 0");
  return options.prefetch;
}

// A function makes what one pipeline reads, so that there is nothing to divide.
void require_whole(const InputOptions& options) {
  constexpr std::string_view kMakesShares =
      ": the function makes what each pipeline reads, by its InputContext, and nothing is divided";
  if (options.keep_order) invalid("distribute_datasets_from_function: keep_order", kMakesShares);
  if (options.auto_shard == AutoShardPolicy::kFile || options.auto_shard == AutoShardPolicy::kData)
    invalid("distribute_datasets_from_function: auto_shard", kMakesShares);
}

}  // namespace

data::DistributedDataset Strategy::distribute_dataset(const data::Dataset& dataset,
                                                      const InputOptions& options) {
  auto distribution = together(workers(), [&] {
    data::require_no_trace("distribute_dataset");
    data::require_batches(dataset, data::Distribution::Kind::kSplit);
    const InputContext context = input_context();
    const bool is_whole = options.keep_order || options.auto_shard == AutoShardPolicy::kOff;
    if (context.num_input_pipelines > 1 && !is_whole) require_shares();
    const data::Pipeline pipeline{context.num_input_pipelines, context.input_pipeline_id,
                                  static_cast<int>(devices().size()), context.independent};
    auto batches = data::pipeline_batches(dataset, options, pipeline);
    const bool must_agree =
        batches->cardinality() == data::kUnknown || data::has_unknown_steps(*batches);
    return std::make_shared<data::Distribution>(
        data::Distribution{std::move(batches), dataset.source(), data::Distribution::Kind::kSplit,
                           devices(), checked_prefetch(options), workers(), must_agree});
  });
  // What is about other batches on another worker is another call. One of them may have looked into
  // the dataset by itself; the next pass is the same for all.
  const data::Source& source = *dataset.source();
  Packer own;
  own.add(static_cast<int64_t>(source.passes()));
  own.add(data::pack_stages(
      data::common_stages(dataset, options, input_context().num_input_pipelines)));
  std::vector<std::vector<data::Stage>> stages;
  for (const std::string& said : workers().exchange(
           "the distribution of " + data::describe_batches(dataset, options), own.bytes())) {
    Unpacker unpacker(said);
    source.count_passes_from(static_cast<uint64_t>(unpacker.number()));
    stages.push_back(data::unpack_stages(unpacker.text()));
  }
  together(workers(), [&] { data::require_same_stages(workers(), stages); });
  return data::DistributedDataset(std::move(distribution));
}

data::DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<data::Dataset(const InputContext&)>& function,
    const InputOptions& options) {
  return data::DistributedDataset(together(workers(), [&] {
    data::require_no_trace("distribute_datasets_from_function");
    if (!function) invalid("distribute_datasets_from_function: the function is empty");
    require_whole(options);
    const InputContext context = input_context();
    if (context.num_input_pipelines > 1) require_shares();
    const data::Dataset dataset = function(context);
    data::require_batches(dataset, data::Distribution::Kind::kDeal);
    return std::make_shared<data::Distribution>(
        data::Distribution{dataset.source(), dataset.source(), data::Distribution::Kind::kDeal,
                           devices(), checked_prefetch(options), workers(), /*must_agree=*/true});
  }));
}

}  // namespace cohort
