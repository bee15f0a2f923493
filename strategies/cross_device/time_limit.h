#pragma once

#include <memory>

#include "core/collective/communicator.h"

namespace cohort {

// `communicator` with a limit on how long each of its calls may wait for other ranks: the group is
// then aborted with kDeadlineExceeded, naming this rank and the call. A call that takes long to
// move data counts as waiting. Costs a thread.
std::unique_ptr<Communicator> with_time_limit(std::unique_ptr<Communicator> communicator,
                                              double seconds);

}  // namespace cohort
