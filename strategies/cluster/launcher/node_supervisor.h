#pragma once

#include <string>

#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// As supervise(), for this host's part in a job on several: runs its tasks as often as the
// rendezvous says, and returns the exit code that all nodes return. Errors: kUnavailable when the
// rendezvous is lost, with all tasks ended; those of Agent::step().
int supervise_node(const Options& options, const std::string& program,
                   const Environment& environment, const Signals& signals,
                   const net::Descriptor& lifeline);

}  // namespace cohort::launcher
