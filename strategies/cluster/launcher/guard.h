#pragma once

#include <functional>

#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// Splits this process in two, a guard and its child, and returns in both: in the child what `body`
// returns, in the guard the child's exit code. The guard passes on the signals of `signals`; at
// SIGTSTP it and all processes below it stop until it is continued; and when the child is gone,
// however it ended, it kills all processes that the child has left behind.
// The guard is called "cohort-guard" (/proc/PID/comm), its child as this process was.
// When the guard itself is gone, the descriptor that `body` gets reaches its end: `body` has to
// kill its descendants and return. So nothing that `body` starts survives the death of either.
int guarded(const Signals& signals,
            const std::function<int(const net::Descriptor& lifeline)>& body);

}  // namespace cohort::launcher
