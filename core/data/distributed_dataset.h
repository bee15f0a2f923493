#pragma once

#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/data/dataset.h"
#include "core/distribute/per_replica.h"
#include "core/distribute/strategy.h"

namespace cohort::data {

// What each replica of this process is given at one step. A replica may have 0 rows; names, dtypes
// and the shapes of rows are those of the others. Strategy::run takes it. Tensors are in the host's
// memory, whatever the replica's device: what was fetched to that ahead of the step is a copy,
// which a write to the tensor itself does not reach.
class DistributedBatch : public PerReplica<Batch> {
 public:
  using PerReplica<Batch>::PerReplica;
  // Of all replicas of this process together.
  int64_t rows() const;
};

struct Distribution;

// One pass over a distributed dataset. Movable; used by one thread at a time, which ends its
// background thread with it.
class DistributedIterator {
 public:
  DistributedIterator(DistributedIterator&&) noexcept;
  DistributedIterator& operator=(DistributedIterator&&) noexcept;
  ~DistributedIterator();

  // The batches of the next step, or nothing at the end. Throws as Iterator::next() does; inside a
  // replica it is kFailedPrecondition, because a trace would keep the one batch that it saw.
  std::optional<DistributedBatch> next();
  uint64_t epoch() const;

  // As Iterator's: where the pass stands, and going on there. With one input pipeline, a position
  // does not depend on the strategy.
  std::string save() const;
  void restore(std::string_view position);

 private:
  friend class DistributedDataset;
  DistributedIterator(const std::shared_ptr<const Distribution>& distribution,
                      const IterateOptions& options);
  struct State;
  std::unique_ptr<State> state_;
};

// The batches of a dataset, divided over the replicas of a strategy: what
// Strategy::distribute_dataset and distribute_datasets_from_function return. The end of a pipeline:
// it has no transformations.
//
//   for (auto& batch : strategy.distribute_dataset(train)) strategy.run(step, batch);
//
// distribute_dataset: the rows of each global batch go to the replicas one behind the other, by
// split_rows, sharing memory with it; so a partial batch is spread evenly, and the last replicas
// may have no row. With several input pipelines, each reads its share of the elements
// (InputOptions::auto_shard) and cuts it into steps by rebatch_sizes(): functions above batch(), as
// those of map() and filter(), see the rows of one pipeline alone. Where the number of elements is
// known, all pipelines have the same number of steps, at the end perhaps without rows; these
// functions then see batches of 0 rows, too. With drop_remainder all steps are whole global batches
// then; where the number is not known, each pipeline leaves out its own remainder, and while others
// are at their end steps have fewer rows. A repeat() belongs before batch() there: above it, each
// pipeline begins the next pass, and the next round of sizes, at its own end, so that a step may
// have a few rows more than the global batch. distribute_datasets_from_function: the batches of the
// function's dataset go to the replicas in turn; at the end, replicas for which none is left get
// batches of 0 rows.
//
// What decides which elements a pipeline reads has to be alike on all (kFailedPrecondition): seeds,
// arguments and order of what is below the place where elements are divided (auto_shard.h), and the
// counts of take, skip, shard and repeat above it. Functions and data are not compared.
//
// With several workers there are steps as long as any of them has data; the replicas of the others
// get batches of 0 rows meanwhile. Where the number of elements is not known, be they repeated
// without end, and with a function, each call of next() is therefore one of all workers. Then, on a
// single worker too, what has rows on none of them is no step; but take(n) above batch() has
// counted it.
//
// A value type that is cheap to copy; immutable and thread-safe, as Dataset.
class DistributedDataset {
 public:
  // Without an epoch, it is the next pass over the dataset that was distributed; of
  // distribute_dataset, that of the worker that was ahead when it was called.
  DistributedIterator iterate(IterateOptions options = {}) const;
  // One pass, as iterate() without an epoch.
  PassIterator<DistributedIterator, DistributedBatch> begin() const;
  std::default_sentinel_t end() const { return std::default_sentinel; }

  // The number of steps, kInfinite or kUnknown; which it is where a function has made another
  // dataset on each of several workers, of which none knows the others'.
  int64_t cardinality() const;

 private:
  friend class cohort::Strategy;
  explicit DistributedDataset(std::shared_ptr<const Distribution> distribution);
  std::shared_ptr<const Distribution> distribution_;
};

}  // namespace cohort::data
