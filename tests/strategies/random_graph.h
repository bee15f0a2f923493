#pragma once

#include <cstdint>
#include <functional>

#include "core/data/element.h"
#include "core/distribute/step_function.h"
#include "core/graph/graph.h"

// Random programs, to be trained in several ways and compared.
namespace cohort {

// What they take: "x" and "image" [rows, ..] and "target" [rows] of float64, "ids" [rows, ..] and
// "label" [rows] of int64. Another `index` gives other numbers.
data::Batch random_graph_batch(int64_t rows, int index);

// The value of parameter number `index`, which has this shape and is float64.
using ReadParameter = std::function<Value(size_t index, const Shape& shape)>;

// Adds the nodes of a loss that `seed` draws: from a batch as above, ops of all families and
// parameters to a mean over the rows of the global batch. Only the extents behind that of the rows
// decide what is drawn, so batches of all sizes meet the same program, and nothing but the mean
// mixes rows. Parameters are numbered as they are first read; some are read several times, and some
// for values that the loss leaves aside.
//
// Values stay small, and what jumps is not asked about values that are equal but for rounding: so
// another order of additions changes no more than the last digits.
Value draw_loss(uint64_t seed, const BatchValues& batch, const ReadParameter& read);

}  // namespace cohort
