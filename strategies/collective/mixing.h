#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/communicator.h"
#include "core/tensor/tensor.h"

// Decentralised averaging, or gossip: the values of each rank become a weighted mean of its own and
// its neighbours'. The weights of all ranks are a mixing matrix, in which row r has those that rank
// r gives to the values of each rank. Its rows add up to 1, so that equal values stay what they
// are, and so do its columns, so that the mean over all ranks stays what it is. Mixed again and
// again, values come to that mean wherever they get from each rank to every other.
//
// After each step of training this is D-PSGD of Lian et al., "Can Decentralized Algorithms
// Outperform Centralized Algorithms?" (NeurIPS 2017). Random pairs are those of "Asynchronous
// Decentralized Parallel Stochastic Gradient Descent" (ICML 2018) by the same authors, in rounds.
namespace cohort::collective {

// How far from 1 a row or a column may add up to. Training mixes many times: with a column of
// 0.999999, a tenth of every weight is gone after 100,000 rounds.
inline constexpr double kMixingTolerance = 1e-9;

// The tag of the messages of mix(), which other messages do not use.
inline constexpr int kMixingTag = 27'182;

// Another rank, with which this one exchanges values.
struct Neighbour {
  int rank;
  double weight;  // of its values here; 0 for one that only gets those of this rank
};

// The row of one rank. Who is a neighbour of it has it as a neighbour.
struct MixingRow {
  double own_weight = 1;
  std::vector<Neighbour> neighbours = {};
};

// Of a ring, in which each rank has the one before and the one after it as neighbours. Of two ranks
// each has one neighbour, which counts once; a rank alone has none. With a weight of 1/2 and an
// even number of more than two ranks, values never come to their mean. kInvalidArgument unless the
// weight is more than 0 and at most 1/2.
MixingRow ring_row(int rank, int size, double neighbour_weight = 1.0 / 3);

// Of pairs drawn at random, which take the mean of their values; of an odd number of ranks, one
// keeps its own. The same on all ranks for a seed and round.
MixingRow random_pair_row(int rank, int size, uint64_t seed, uint64_t round);

// Of any matrix, the same on all ranks: matrix[r][s] is the weight that rank r gives to the values
// of rank s. kInvalidArgument, with the row or column at fault, unless it has a row and a column
// for each rank, weights that are finite and not negative, and rows and columns that add up to 1.
MixingRow matrix_row(const std::vector<std::vector<double>>& matrix, int rank, int size);

// Replaces the values of `tensors` by the weighted means, by messages between neighbours alone: no
// rank waits for one that is not its neighbour. Neighbours call it together, in whatever order they
// come, with as many tensors, of equal dtypes and shapes, which are floating ones and share no
// memory. Sums are made in float64 and rounded once. Meanwhile a rank holds the tensors of all its
// neighbours.
//
// `round` counts what neighbours do together: that of other ranks has to be the same, so that none
// mixes with values of another time.
//
// What does not fit is kInvalidArgument and names both ranks; so are weights by which the mean of
// all ranks would change. A neighbour that has gone is the error of the group, and one that does
// not come is named when the group's limit for a call is over (ProcessGroupOptions::limit). Every
// error ends the group, so that nobody waits for a rank that has thrown, and leaves the tensors as
// they were.
void mix(Communicator& group, std::span<Tensor> tensors, const MixingRow& row, int64_t round = 0);

// Replaces the values by the means over all ranks, which get the same bits: what mixing comes to,
// in one all-reduce for each dtype. All ranks call it; tensors, `round` and errors are those of
// mix(), but after an error tensors may hold anything.
void average(Communicator& group, std::span<Tensor> tensors, int64_t round = 0);

}  // namespace cohort::collective
