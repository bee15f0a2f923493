#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/data/dataset.h"

namespace cohort::data {

// Which of `rows` rows one of several workers reads in an epoch: PyTorch's
// torch.utils.data.distributed.DistributedSampler, with its index lists (but for the permutation,
// which comes from our random numbers). All workers read equally many rows: of the list of all
// rows, in order or shuffled by seed + epoch, rank r has positions r, r + num_replicas, ... First
// the list is filled up from its beginning to a multiple of num_replicas, so that some rows are
// read twice; with drop_last, it is cut to one instead.
//
// Where rows must not count twice, as in evaluation, distribute_dataset() is exact instead.
//
// A cheap handle: copies share the epoch that was set. Thread-safe.
class DistributedSampler {
 public:
  struct Options {
    int64_t num_replicas = 1;
    int64_t rank = 0;  // from 0 to num_replicas - 1
    bool shuffle = true;
    uint64_t seed = 0;  // the same on every worker, or rows are read twice and not at all, which
                        // distribute_dataset() refuses
    bool drop_last = false;
  };

  // kInvalidArgument for a negative count or a rank out of range.
  DistributedSampler(int64_t rows, const Options& options);

  // The order changes with the epoch.
  void set_epoch(uint64_t epoch);
  std::optional<uint64_t> epoch() const;  // none until set

  int64_t rows() const;  // of all ranks
  const Options& options() const;
  // How many rows this rank reads, and which, in order, in the epoch that was set (0 until then) or
  // in a given one.
  int64_t size() const;
  std::vector<int64_t> indices() const { return indices(epoch().value_or(0)); }
  std::vector<int64_t> indices(uint64_t epoch) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// The rows of `tensors` that the sampler names, in its order. Each pass has the epoch that was set
// last before it began, or, when none was, its own (IterateOptions::epoch): fit() needs no call of
// set_epoch. Where each worker has its own rank, distribute_dataset() and fit() divide these rows
// no further; batches are global ones as ever. kInvalidArgument when the tensors do not have the
// sampler's number of rows, or as from_tensor_slices().
Dataset from_sampler(const Element& tensors, const DistributedSampler& sampler);

}  // namespace cohort::data
