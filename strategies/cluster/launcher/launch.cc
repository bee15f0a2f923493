#include "strategies/cluster/launcher/launch.h"

#include <algorithm>
#include <cstdio>

#include "core/base/cores.h"
#include "core/base/version.h"
#include "strategies/cluster/launcher/core_share.h"
#include "strategies/cluster/launcher/descriptor_limit.h"
#include "strategies/cluster/launcher/environment.h"
#include "strategies/cluster/launcher/execution.h"
#include "strategies/cluster/launcher/guard.h"
#include "strategies/cluster/launcher/node_supervisor.h"
#include "strategies/cluster/launcher/options.h"
#include "strategies/cluster/launcher/outer_launcher.h"
#include "strategies/cluster/launcher/signals.h"
#include "strategies/cluster/launcher/supervisor.h"
#include "strategies/cluster/net/descriptor.h"

namespace cohort::launcher {
namespace {

// Becomes the program, as one of several that `outer` started.
[[noreturn]] void become_task(const Options& options, const std::string& program,
                              const OuterLauncher& outer) {
  if (outer.rank == 0 && !options.quiet) {
    std::fprintf(stderr,
                 "cohort-run: one of %d tasks of %s: they are the cluster, and run %s themselves "
                 "(--standalone starts a cluster in each)\n",
                 outer.size, outer.name.c_str(), options.command[0].c_str());
  }
  fail_to_run(become_program(program, options.command, Environment::current().strings()), program);
}

void divide_cores(const Options& options, Environment& environment) {
  const int tasks = options.tasks();
  if (options.bind_to_cores) core_share(0, tasks);  // an error here is one before any task starts
  if (environment.has("OMP_NUM_THREADS") || tasks == 1) return;
  const int cores = available_cores(), threads = std::max(1, cores / tasks);
  if (!options.quiet) {
    std::fprintf(
        stderr,
        "cohort-run: OMP_NUM_THREADS=%d for each of %d tasks on %d cores (set it yourself to "
        "choose)\n",
        threads, tasks, cores);
  }
  environment.set("OMP_NUM_THREADS", std::to_string(threads));
}

}  // namespace

int launch(int argc, char** argv) {
  const Options options = parse_options(argc, argv);
  if (options.version) {
    std::printf("cohort-run %s\n", COHORT_VERSION);
    return 0;
  }
  use_all_cores();  // so do the tasks, which inherit that
  const std::string program = find_program(options.command[0]);
  Environment environment = Environment::current();
  if (!options.standalone && !options.nodes) {
    if (const auto outer = find_outer_launcher(environment)) become_task(options, program, *outer);
  }

  raise_descriptor_limit(options);
  forget_outer_launcher(environment);
  divide_cores(options, environment);
  const Signals signals;
  return guarded(signals, [&](const net::Descriptor& lifeline) {
    if (options.nodes) return supervise_node(options, program, environment, signals, lifeline);
    return supervise(options, program, environment, signals, lifeline);
  });
}

}  // namespace cohort::launcher
