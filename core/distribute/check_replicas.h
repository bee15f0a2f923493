#pragma once

#include <memory>
#include <vector>

#include "core/runtime/variable.h"

namespace cohort {

class Strategy;

// Compares, between steps, the copies that the replicas of `strategy` have of `variables`: a call
// of all workers, with the same variables. Synchronous training keeps them equal bit for bit, and
// nothing else in it would tell that they are not any more, as after an error of memory or of a
// processor, or a write by the program to one copy only. kDataLoss, on all workers, then: it names
// the first variable that differs and the replicas whose bits are not those of most, or, where no
// more than half are alike, not those of the first; peer() is the worker of the first of these.
//
// Each copy is read once, that of a GPU by way of the host, and all workers tell each other its
// CRC-32C: copies that differ in one bit never pass, any others once in 2^32 times. Not compared
// are variables of which replicas have values of their own (Synchronization::kOnRead, kNone), and
// those of which all replicas share one copy, as CPUs of one host do. Replicas that round
// differently, as a CPU beside a GPU, differ without a fault.
//
// kInvalidArgument for a null variable; kFailedPrecondition while a function is traced, and where
// updates are made elsewhere (ParameterServerStrategy), where copies are of different ages.
void check_replicas(Strategy& strategy, const std::vector<std::shared_ptr<Variable>>& variables);

}  // namespace cohort
