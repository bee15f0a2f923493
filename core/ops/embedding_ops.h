#pragma once

#include <optional>

#include "core/graph/graph.h"

// Lookups of several rows at once that are combined into one (tf.nn.embedding_lookup_sparse and
// tf.nn.safe_embedding_lookup_sparse). A ragged batch of ids has a static shape here: `ids` is
// integer [.., n] with as many columns as the longest list needs, and -1 where a list has no more,
// anywhere in its row. `params` is [rows, ..]: a result has ids' shape without its last axis, then
// that of a row.
//
// Made of a single Gather by rows: the gradient with respect to a whole variable is sparse, and of
// a variable on parameter servers the rows that are named are pulled alone, each once. One id for
// each result (tf.nn.embedding_lookup) is ops::gather.
namespace cohort::ops {

// How the rows e of a list, with weights w (1 where none are given), become one.
enum class Combiner {
  kSum,   // sum(w e)
  kMean,  // sum(w e) / sum(w)
  kSqrtN  // sum(w e) / sqrt(sum(w^2))
};

// Takes ids and weights as they are: an id below -1 or beyond the table is kOutOfRange at run time,
// weights may have any sign. `weights`, if any, has the shape of ids and the dtype of params, and
// gets a gradient. Zeros where nothing is listed, or what the combiner divides by is 0.
Value embedding_lookup_sparse(const Value& params, const Value& ids, const Value& weights = {},
                              Combiner combiner = Combiner::kMean);

struct SafeLookupOptions {
  Combiner combiner = Combiner::kMean;
  // The row for a list of which nothing is left, with weight 1; none: zeros.
  std::optional<int64_t> default_id = {};
};
// Leaves out what cannot be looked up: every negative id, and but for kSum, as in TensorFlow, every
// id whose weight is not above 0. An id beyond the table is kOutOfRange at run time.
Value safe_embedding_lookup_sparse(const Value& params, const Value& ids, const Value& weights = {},
                                   const SafeLookupOptions& options = {});

}  // namespace cohort::ops
