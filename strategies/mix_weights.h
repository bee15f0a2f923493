#pragma once

#include <cstdint>

#include "core/collective/communicator.h"
#include "core/train/callback.h"

namespace cohort::callbacks {

// What a worker's weights are mixed with (strategies/collective/mixing.h).
enum class Mixing {
  kRing,         // those of the workers before and after it: D-PSGD
  kRandomPairs,  // those of one other, drawn for each round: AD-PSGD, in rounds
  kAverage,      // those of all, by an all-reduce: Local SGD
};

struct MixWeightsOptions {
  Mixing mixing = Mixing::kRing;
  int64_t every_steps = 1;              // as the optimizer counts them, over all fits
  double neighbour_weight = 1.0 / 3;    // of a ring, as of collective::ring_row()
  uint64_t seed = 0;                    // of random pairs
  bool with_moving_statistics = false;  // all floating variables, rather than those trained
};

// Decentralised training: every worker trains a model of its own, by fit() under a strategy of its
// own process, on data of its own, and this mixes the models' weights. What an optimizer keeps,
// such as momentum, is never mixed. Workers begin with equal weights where they set the same seed,
// or broadcast them.
//
//   collective::ProcessGroup group;
//   model.fit(train.shard(group.size(), group.rank()).batch(32),
//             {.epochs = 3, .callbacks = {callbacks::MixWeights(group)}});
//
// The workers are the ranks of `group`, which outlives training and is used by nothing else
// meanwhile. All begin to train together with the same options: kInvalidArgument otherwise, and the
// group lives on. All have models of the same variables and make as many steps, and meet when
// training ends: kInvalidArgument names two that do not, and ends the group. A training that is
// interrupted ends it too, so that nobody waits for it; one that fails must leave the group's scope
// to do so.
// Who waits for a worker that lives does so for the group's limit, ProcessGroupOptions::limit.
//
// kInvalidArgument for options out of range; training under a strategy of several workers, or with
// parameter servers, is kFailedPrecondition: they have one model together.
CallbackPtr MixWeights(Communicator& group, const MixWeightsOptions& options = {});

}  // namespace cohort::callbacks
