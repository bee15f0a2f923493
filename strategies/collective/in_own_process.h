#pragma once

#include <memory>
#include <vector>

#include "core/collective/communicator.h"

namespace cohort {

// The same ranks, which a fork of this process can neither use, which is kFailedPrecondition, nor
// end: what it leaves of them is without effect.
std::vector<std::unique_ptr<Communicator>> in_own_process(
    std::vector<std::unique_ptr<Communicator>> ranks);

}  // namespace cohort
