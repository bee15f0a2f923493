#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/cancellation.h"
#include "core/base/random.h"
#include "core/data/element.h"
#include "core/data/position.h"
#include "core/data/stage.h"
#include "core/data/table.h"

// What a dataset is made of: a chain of immutable Sources, each of which opens Streams, one for
// each pass. A transformation is a Source and a Stream in a file of its own, which also defines the
// Dataset method that makes it. Only the sources of core/data include this header.
namespace cohort::data {

// The sources of a pipeline that draw without a seed of the user's, each once, those below first.
// Copies of a source are one.
using Unseeded = std::vector<uint64_t>;

// Which pass over the data a stream makes; all that its random numbers depend on, apart from seeds.
struct Pass {
  uint64_t epoch = 0;
  // Differs between the datasets that an interleave() opens, so that each is shuffled differently.
  uint64_t place = 0;
  // The number of the input pipeline that reads by itself; 0 where all of them read the same.
  uint64_t pipeline = 0;
  // Whether elements have to come in the same order each time, whatever map() was told.
  bool in_order = false;
  // By which those without seeds are told apart. Null where no source above has counted them.
  std::shared_ptr<const Unseeded> unseeded = nullptr;

  // Of dataset `index` that an interleave() opens: a pipeline of its own.
  Pass inner(uint64_t index) const {
    return {.epoch = epoch, .place = mix(place, index), .pipeline = pipeline, .in_order = in_order};
  }
};

// An element that need not exist yet: it may be named by its row in a table, so that reordering
// costs next to nothing and batch() can copy rows straight to where they belong.
struct Item {
  Element element;  // when there is no table
  std::shared_ptr<const Table> table = nullptr;
  int64_t row = 0;

  Element make() const& { return table ? table->row(row) : element; }
  Element make() && { return table ? table->row(row) : std::move(element); }
};

// One pass over a source. Used by one thread at a time; may refer to its source, which outlives it.
// What may take many elements of its input for one of its own calls check_cancelled() between them:
// the thread that reads it may be told to stop.
class Stream {
 public:
  virtual ~Stream() = default;

  // The next item, or nothing at the end, also when called again.
  virtual std::optional<Item> next() = 0;
  // Passes over up to `count` items without making them where that is possible; returns over how
  // many.
  virtual int64_t skip(int64_t count) {
    int64_t skipped = 0;
    for (; skipped < count && next(); ++skipped) check_cancelled();
    return skipped;
  }
  // Where the stream stands: what the next call of next() depends on.
  virtual Position save() const = 0;
  // Continues from a saved position of the same pass.
  // REQUIRES: the stream is fresh; after an error it is dropped.
  virtual void restore(const Position& position) = 0;
};

class Source;
using SourcePtr = std::shared_ptr<const Source>;

// Where a dataset can be divided into shards, seen from one of its transformations: on which side
// of it that makes no difference, but that less is read below.
enum class ShardBelow {
  kElements,  // below it, by element and by file: it takes its input's elements one by one
  kFiles,     // below it by file only: how many elements it makes of one, only reading would tell
  kNothing    // on it: what it yields depends on where elements are in the whole
};

// One of the ranks that a DistributedSampler shares rows out among.
struct SamplerRank {
  int64_t rank = 0;
  int64_t num_replicas = 1;
};

class Source {
 public:
  Source() = default;
  virtual ~Source() = default;
  Source& operator=(const Source&) = delete;

  virtual std::unique_ptr<Stream> open(const Pass& pass) const = 0;
  // A count, kInfinite or kUnknown.
  virtual int64_t cardinality() const = 0;
  // The n of the last batch(n) above, if there is one.
  virtual std::optional<int64_t> batch_size() const { return std::nullopt; }
  // Whether the elements can be batches: there is a batch(n) above, or a function that may have
  // made them.
  virtual bool may_yield_batches() const { return false; }

  // Whether each pass of an epoch yields the same elements in the same order, as far as can be
  // seen: of datasets that functions make, only Pass::in_order makes sure.
  virtual bool is_ordered() const {
    const std::vector<SourcePtr> all = inputs();
    return std::ranges::all_of(all, [](const SourcePtr& input) { return input->is_ordered(); });
  }

  // Adds the sources without seeds that are here and below, unless they are there already.
  virtual void add_unseeded(Unseeded& found) const {
    for (const SourcePtr& input : inputs()) input->add_unseeded(found);
  }

  // What this source itself, of those of a pipeline, has to do with which elements there are and in
  // which order; nothing where it hands on each as it comes. `all`: the whole pipeline's.
  virtual std::optional<Stage> stage(const Unseeded& /*all*/) const { return std::nullopt; }

  // Whether a pass that is read to its end is kept for later ones, by a cache() in this pipeline.
  virtual bool keeps_passes() const {
    const std::vector<SourcePtr> all = inputs();
    return std::ranges::any_of(all, [](const SourcePtr& input) { return input->keeps_passes(); });
  }

  // Whose rows these are, where this is a DistributedSampler that has shared out those of the whole
  // dataset among several ranks.
  virtual std::optional<SamplerRank> sampler_rank() const { return std::nullopt; }

  // Whether all elements are of a share that the program itself has taken of a whole, by a
  // DistributedSampler or shard(n, index).
  virtual bool is_share() const {
    const std::vector<SourcePtr> all = inputs();
    return !all.empty() &&
           std::ranges::all_of(all, [](const SourcePtr& input) { return input->is_share(); });
  }

  // --- Rewriting, for sharding

  virtual std::vector<SourcePtr> inputs() const { return {}; }
  // The same transformation of as many other inputs.
  virtual SourcePtr with_inputs(const std::vector<SourcePtr>& inputs) const;
  // The same, of a share of its own inputs: what is kept of a pass over one of these copies is for
  // all that have the same `share`, which says in words which one it is.
  virtual SourcePtr with_share(const std::vector<SourcePtr>& inputs,
                               const std::string& /*share*/) const {
    return with_inputs(inputs);
  }
  virtual ShardBelow shard_below() const { return ShardBelow::kNothing; }
  // The files that a source reads, and the same source reading others; null for a source that reads
  // none, or holds all that it has read.
  virtual const std::vector<std::string>* files() const { return nullptr; }
  virtual SourcePtr with_files(std::vector<std::string> files) const;
  // Of the names of the files, in order, below the folder that all had in common before any were
  // shared out: hosts may have that under other names.
  virtual uint32_t files_checksum() const { return 0; }

  // Numbers the passes that were begun without an epoch of their own: 0, 1, 2, ...
  uint64_t count_pass() const { return passes_++; }
  uint64_t passes() const { return passes_; }
  // Counts on from there, if it is ahead.
  void count_passes_from(uint64_t passes) const {
    uint64_t counted = passes_;
    while (counted < passes && !passes_.compare_exchange_weak(counted, passes)) {
    }
  }

 protected:
  Source(const Source&) {}  // a copy counts its own passes

  // With what a source that draws, or that has several inputs, opens each of these.
  Pass of_inputs(Pass pass) const {
    if (pass.unseeded) return pass;
    Unseeded found;
    add_unseeded(found);
    pass.unseeded = std::make_shared<const Unseeded>(std::move(found));
    return pass;
  }

 private:
  mutable std::atomic<uint64_t> passes_{0};
};

// A source with one input, which it resembles unless it says otherwise. `Derived` has to be
// copyable.
template <typename Derived>
class Decorator : public Source {
 public:
  explicit Decorator(SourcePtr input) : input_(std::move(input)) {}
  int64_t cardinality() const override { return input_->cardinality(); }
  std::optional<int64_t> batch_size() const override { return input_->batch_size(); }
  bool may_yield_batches() const override { return input_->may_yield_batches(); }
  std::vector<SourcePtr> inputs() const override { return {input_}; }
  SourcePtr with_inputs(const std::vector<SourcePtr>& inputs) const override {
    auto copy = std::make_shared<Derived>(static_cast<const Derived&>(*this));
    static_cast<Decorator&>(*copy).input_ = inputs.at(0);
    return copy;
  }
  ShardBelow shard_below() const override { return ShardBelow::kElements; }

 protected:
  const Source& input() const { return *input_; }

  // With what an input is opened whose elements are read again by their numbers: one that is
  // ordered has to give each the same number then.
  Pass of_reread_input(Pass pass) const {
    pass.in_order |= input().is_ordered();
    return pass;
  }

 private:
  SourcePtr input_;
};

}  // namespace cohort::data
