#pragma once

#include <cstddef>
#include <vector>

#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

// Of all its tensors.
size_t bytes_of(const Command& command);
// In as many messages as it takes, in their order, where each may have so many bytes in tensors. No
// command has more.
std::vector<ToWorker> cut_commands(std::vector<Command> commands, size_t max_bytes);
// The same for a worker's answers, whose time is divided among the messages. No result has more.
std::vector<FromWorker> cut_answers(FromWorker answers, size_t max_bytes);

}  // namespace cohort::coordinator
