#pragma once

#include <cstdint>

namespace cohort {

// What a scatter does with the rows it names: target[indices[i]] = target[indices[i]] op
// updates[i], in the order of i; kUpdate replaces. Integers divide towards zero. The numbers are
// part of the serialised graph format.
enum class ScatterOp : int64_t {
  kAdd = 0,
  kSub = 1,
  kMul = 2,
  kDiv = 3,
  kMin = 4,
  kMax = 5,
  kUpdate = 6
};

}  // namespace cohort
