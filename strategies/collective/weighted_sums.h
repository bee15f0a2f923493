#pragma once

#include "core/collective/communicator.h"
#include "core/tensor/tensor.h"

// Sums of all ranks' tensors that give each a weight. Every rank gets the same bits. Tensors have
// equal shapes and dtypes, which are floating ones (else kUnimplemented). Ranks tell each other
// first what they give: what does not fit is an error on every rank, names both sides, and leaves
// the group as it was.
namespace cohort::collective {

// all_reduce of `factor` times the values (PREMUL_SUM). Each product is rounded once, before it is
// added. The factor is finite and the same on all ranks: kInvalidArgument.
Tensor premultiplied_sum(Communicator& group, const Tensor& value, double factor);

// Adasum: gradients that point in the same direction are averaged, those at right angles are added.
// Two ranks' values a and b become
//
//   (1 - a.b / 2 a.a) a + (1 - a.b / 2 b.b) b
//
// where a vector without length counts as it is. Neighbours are combined first, ranks 0 and 1, 2
// and 3 and so on, then the results of neighbouring pairs, fours and so on: kInvalidArgument unless
// the number of ranks is a power of two. The tensor is one vector, so a model's variables are given
// one by one. Half types are combined in float and rounded once, and of no dtype are numbers too
// large or too small. A rank sends its tensor once for each doubling of the number of ranks.
Tensor adasum(Communicator& group, const Tensor& value);

}  // namespace cohort::collective
