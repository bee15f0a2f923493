#pragma once

#include <cstdint>
#include <optional>

namespace cohort {

// How far workers may run apart, and what becomes of gradients that were computed from old weights.
struct ConsistencyOptions {
  // None: asynchronous, every gradient is applied as it arrives. 0: synchronous, one update for the
  // sum of the gradients of num_workers - backup_workers workers, where they have weights as many
  // times their mean, and what comes later is dropped. Those that weigh nothing, as of no rows, are
  // not counted: they come on top.
  // s > 0: asynchronous, but a worker waits before it is more than s steps ahead of the slowest
  // (Ho et al. 2013).
  std::optional<int64_t> max_staleness = {};
  // How many there are: whoever has not come yet counts as one that has done no step.
  int num_workers = 1;
  int backup_workers = 0;  // synchronous only (Chen et al. 2016)
  // Asynchronous only: the learning rate is divided by a gradient's staleness, where that is more
  // than 1 (Zhang et al. 2016).
  bool scale_learning_rate = false;
  // Asynchronous only: lambda of DC-ASGD (Zheng et al. 2017), g + lambda g g (w - w_pulled), for
  // dense gradients by which an optimizer moves floating-point variables that are read whole, not
  // looked up by rows. The server then keeps, for each worker, the weights that it has pulled last.
  double delay_compensation = 0;

  bool synchronous() const { return max_staleness == 0; }
  int gradients_per_update() const { return num_workers - backup_workers; }
  // kInvalidArgument for what does not go together.
  void check() const;
};

}  // namespace cohort
