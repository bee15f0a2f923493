#pragma once

#include <chrono>

namespace cohort::net {

// For how long what this end of a connection of TCP has sent kept the network busy since it began:
// from when the system had it until the other one acknowledged it, without the time in which that
// one had no room. 0 where there is no connection any more, or the system does not tell.
std::chrono::microseconds sending_time(int fd);

}  // namespace cohort::net
