#pragma once

#include <memory>
#include <vector>

#include "core/collective/communicator.h"
#include "strategies/collective/flight_recorder_options.h"

namespace cohort {

// Communicators that do what the given ones do, of all ranks of this process, and keep the last
// operations of each rank: what, how much, by which op and of which shape the first tensor is
// (where the call tells it), when, and whether it is still under way. When an operation fails, or
// the group is aborted by another error than kCancelled, one table per process shows what each of
// its ranks did last, so that one can see who waits in which call: collectives have the same
// numbers on all ranks. The error itself stays what it is. An abort by kResourceExhausted,
// kPermissionDenied or kNotFound, as of a file, while no rank of the process is in an operation,
// makes no table either, nor does kOutOfRange, which is about values, ever, nor a message that is
// refused, after which the group goes on.
//
// With a store, the table has the ranks of all processes, and those that are elsewhere, as in a
// loop that never ends, are heard as well, by a thread of their process; with a store for
// time-outs, those that have got kDeadlineExceeded from a call. Recording takes no memory for an
// operation, and less than a tenth of a microsecond; its times are exact to the system's tick, some
// milliseconds. Parts made by split() are recorded, each by itself, without the store.
std::vector<std::unique_ptr<Communicator>> record_flights(
    std::vector<std::unique_ptr<Communicator>> ranks, const FlightRecorderOptions& options);

}  // namespace cohort
