#pragma once

#include <vector>

#include "strategies/collective/mpi/traffic.h"

namespace cohort::mpi {

// What `rank` gives rank `to` together with the news that it makes `call`, which must be
// without mistakes: data that is small.
std::vector<char> attachment(const Call& call, int rank, int to);

// Does this rank's part of a call that all make: moves and combines the data, but for what came
// with `heard`. The ranks combine disjoint parts, each all sources in rank order by the loops of
// core/collective/reduction.h, and pass the results on as they are: the bits are the same on all.
void carry_out(const Call& call, Traffic& traffic, const std::vector<Control>& heard);

}  // namespace cohort::mpi
