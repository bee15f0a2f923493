#include "strategies/coordinator/coordinator_options.h"

#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort::coordinator {

CoordinatorOptions completed(CoordinatorOptions options, const Environment& environment) {
  if (options.job_id.empty()) options.job_id = environment("COHORT_JOB_ID").value_or("");
  if (!options.notice) options.notice = [](const std::string& line) { print_notice(line + "\n"); };
  if (options.max_attempts < 1) invalid("max_attempts is 1 at least, got ", options.max_attempts);
  if (options.schedule_timeout.count() < 0)
    invalid("schedule_timeout is 0 at least, got ", options.schedule_timeout.count(), " ms");
  if (options.stop_timeout.count() < 0)
    invalid("stop_timeout is 0 at least, got ", options.stop_timeout.count(), " ms");
  if (options.start_delay.count() < 0 || options.max_start_delay.count() < 0)
    invalid("start_delay and max_start_delay are 0 at least, got ", options.start_delay.count(),
            " and ", options.max_start_delay.count(), " ms");
  if (options.worker_timeout.count() < 0)
    invalid("worker_timeout is 0 at least, got ", options.worker_timeout.count(), " ms");
  if (options.stuck_after.count() < 0)
    invalid("stuck_after is 0 at least, got ", options.stuck_after.count(), " ms");
  if (options.max_bytes < 1) invalid("max_bytes is 1 at least, got 0");
  return options;
}

}  // namespace cohort::coordinator
