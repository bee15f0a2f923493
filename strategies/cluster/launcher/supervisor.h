#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/output_sink.h"
#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {

// Runs the cluster that `options` ask for, as often as they allow, and reports failures on standard
// error. Returns the exit code of the whole: 0, or that of the task that failed. For Setting's
// fields of the same names see attempt.h.
int supervise(const Options& options, const std::string& program, const Environment& environment,
              const Signals& signals, const net::Descriptor& lifeline);

// Writes what is queued, for as long as it takes a reader, unless another signal arrives or the
// guard is gone. Where the run has a `timeout`, a reader has the grace after that and after now,
// and what it does not take then is given up.
void flush(const Options& options, const Console& console, const net::Descriptor& signal_queue,
           const net::Descriptor& lifeline,
           std::optional<std::chrono::steady_clock::time_point> timeout);

}  // namespace cohort::launcher
