#pragma once

#include <cstdint>

namespace cohort::benchmarks {

// A simple cost model of synchronous data-parallel training, to tell what is to be expected of more
// workers than one has. All arithmetic; times are in seconds, sizes in bytes, and a time or size
// below 0, or a count below 1, is kInvalidArgument.
//
// It assumes equal workers with a core (or device) and a network link of their own, links that do
// not disturb each other, no stragglers, and messages that take latency + bytes / bandwidth.

struct Network {
  double latency = 0;           // of one round of messages
  double bytes_per_second = 1;  // of one worker, each way; has to be above 0
};

enum class AllReduceAlgorithm {
  kRing,  // 2 (P - 1) rounds that move S / P bytes each: the least data
  kTree   // ceil(log2 P) rounds to the root and as many back that move S bytes each: few rounds
};
const char* name_of(AllReduceAlgorithm algorithm);

// Rounds of messages one after the other; 0 for a worker alone.
int64_t all_reduce_rounds(AllReduceAlgorithm algorithm, int64_t workers);
// The time to add up `bytes` bytes of every worker; 0 for a worker alone.
double all_reduce_seconds(AllReduceAlgorithm algorithm, const Network& network, double bytes,
                          int64_t workers);
// The faster one; the ring where they are equal.
AllReduceAlgorithm faster_all_reduce(const Network& network, double bytes, int64_t workers);

// The network in which the ring's formula gives `small_seconds` for next to no data, and
// `large_seconds` for `large_bytes` bytes. kInvalidArgument for a worker alone, and when more data
// does not take longer.
Network network_from(int64_t workers, double small_seconds, double large_bytes,
                     double large_seconds);

enum class Scaling {
  kWeak,   // every worker computes as many rows as one does alone
  kStrong  // all workers together do
};

// A step of a worker alone.
struct StepCosts {
  double compute = 0;       // all but communication; has to be above 0
  double overlappable = 0;  // the end of the backward pass, from its first complete bucket on
  double gradient_bytes = 0;
};

struct Prediction {
  int64_t workers;
  AllReduceAlgorithm algorithm;
  double compute;
  double communication;
  double exposed;     // the part of it behind which nothing is computed
  double step;        // compute + exposed
  double efficiency;  // throughput over that of as many workers without communication
};

// Strong scaling divides computation, and what it can hide, by the number of workers.
Prediction predict(const StepCosts& costs, const Network& network, Scaling scaling,
                   int64_t workers);

}  // namespace cohort::benchmarks
