#include "strategies/parameter_server/same_consistency.h"

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"

namespace cohort::parameter_server {
namespace {

constexpr int64_t kAnyStaleness = -1;  // in messages

std::string staleness(int64_t most) {
  if (most < 0) return "none (asynchronous)";
  return most == 0 ? "0 (synchronous)" : str(most);
}

std::string yes_or_no(bool value) { return value ? "true" : "false"; }

void require_same(bool same, const std::string& task, const char* option,
                  const std::string& present, const std::string& expected) {
  if (same) return;
  fail(Code::kFailedPrecondition, option, " is ", present, " on this server, and ", expected,
       " for ", task,
       ": servers and workers need the same options; give the server those of the workers, by "
       "run_parameter_server(options) or ParameterServerOptions::consistency");
}

}  // namespace

void write_consistency(const ConsistencyOptions& consistency, proto::Consistency* out) {
  out->set_max_staleness(consistency.max_staleness.value_or(kAnyStaleness));
  out->set_num_workers(consistency.num_workers);
  out->set_backup_workers(consistency.backup_workers);
  out->set_scale_learning_rate(consistency.scale_learning_rate);
  out->set_delay_compensation(consistency.delay_compensation);
}

void require_same(const ConsistencyOptions& present, const proto::Consistency& expected,
                  const std::string& task) {
  const int64_t most = present.max_staleness.value_or(kAnyStaleness);
  require_same(most == expected.max_staleness(), task, "max_staleness", staleness(most),
               staleness(expected.max_staleness()));
  // Where nobody waits for others, nobody needs to know how many there are.
  require_same(!present.max_staleness || present.num_workers == expected.num_workers(), task,
               "num_workers", str(present.num_workers), str(expected.num_workers()));
  require_same(present.backup_workers == expected.backup_workers(), task, "backup_workers",
               str(present.backup_workers), str(expected.backup_workers()));
  require_same(present.scale_learning_rate == expected.scale_learning_rate(), task,
               "scale_learning_rate", yes_or_no(present.scale_learning_rate),
               yes_or_no(expected.scale_learning_rate()));
  require_same(present.delay_compensation == expected.delay_compensation(), task,
               "delay_compensation", str(present.delay_compensation),
               str(expected.delay_compensation()));
}

}  // namespace cohort::parameter_server
