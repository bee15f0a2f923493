#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/collective/communicator.h"

namespace cohort {

// `ranks`, which are all of a group and threads of this process, with a limit on how long each of
// their calls may wait for the others: the group is then aborted with kDeadlineExceeded, which
// names the call, the rank that has waited and those that have not made it, or who has not sent or
// taken its message. They are called `names`, by rank. A call that takes long to move data counts
// as waiting. Costs a thread for each. For ranks elsewhere see GroupOptions::limit.
std::vector<std::unique_ptr<Communicator>> with_time_limit(
    std::vector<std::unique_ptr<Communicator>> ranks, std::chrono::milliseconds limit,
    const std::vector<std::string>& names);

}  // namespace cohort
