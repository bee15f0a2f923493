#include "strategies/cluster/launcher/descriptor_limit.h"

#include <optional>
#include <sys/resource.h>

#include "core/base/error.h"

namespace cohort::launcher {
namespace {

constexpr int kOthers = 32;  // of this process itself, and while a task is started

std::optional<rlimit> before;  // raise_descriptor_limit()

// A port where a task has one, its two streams, and their log files.
int needed(const Options& options) {
  const int tasks = options.tasks(), with_port = tasks - options.evaluator;
  const int nodes = options.nodes ? options.nodes->max_nodes : 0;  // at the rendezvous
  return with_port + tasks * (options.log_dir.empty() ? 2 : 4) + nodes + kOthers;
}

}  // namespace

void raise_descriptor_limit(const Options& options) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  before = limit;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) limit = *before;
  const int wanted = needed(options);
  if (static_cast<rlim_t>(wanted) <= limit.rlim_cur) return;
  fail(Code::kResourceExhausted, "--workers=", options.workers, " --ps=", options.ps,
       options.log_dir.empty() ? "" : " --log_dir", " needs up to ", wanted,
       " open files in cohort-run, and the system allows ", limit.rlim_cur,
       " (ulimit -Hn): ask for fewer tasks, or have that limit raised");
}

void restore_descriptor_limit() {
  if (before) setrlimit(RLIMIT_NOFILE, &*before);
}

}  // namespace cohort::launcher
