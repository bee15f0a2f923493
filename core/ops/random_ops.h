#pragma once

#include "core/graph/graph.h"

// Random ops. Counter-based (Philox4x32-10, Salmon et al. 2011): the values depend only on the
// seed, on the op's place in the graph, on the step and on the replica, never on threads or on what
// ran before. A `seed` of 0 takes a number from the traced graph's order, so two ops of one
// function differ by default, and the first ones of two functions do not. A dtype that is not
// floating, a range from high to low or beyond the dtype, a negative deviation or a rate beyond its
// bounds is kInvalidArgument at once.
namespace cohort::ops {

// In [low, high).
Value random_uniform(const Shape& shape, double low = 0, double high = 1,
                     DType dtype = DType::kFloat32, int64_t seed = 0);
Value random_normal(const Shape& shape, double mean = 0, double stddev = 1,
                    DType dtype = DType::kFloat32, int64_t seed = 0);
// Normal, with values beyond two standard deviations drawn again.
Value truncated_normal(const Shape& shape, double mean = 0, double stddev = 1,
                       DType dtype = DType::kFloat32, int64_t seed = 0);
// Zeroes each element with probability `rate` in [0, 1) and scales the others by 1 / (1 - rate).
Value dropout(const Value& x, double rate, int64_t seed = 0);

}  // namespace cohort::ops
