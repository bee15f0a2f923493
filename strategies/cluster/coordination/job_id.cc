#include "strategies/cluster/coordination/job_id.h"

#include <algorithm>

#include "core/base/error.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/parsing.h"

namespace cohort::coordination {

std::string checked_job_id(std::string id, std::string_view source) {
  const bool readable = std::ranges::all_of(id, [](char c) { return c > ' ' && c <= '~'; });
  if (id.size() > kMaxJobIdBytes || !readable) {
    config::refuse(source, quote(id),
                   str("at most ", kMaxJobIdBytes, " printable characters without spaces"),
                   "4f6c1d0e9b7a45c2a1d38e5f60718293");
  }
  return id;
}

std::string given_job_id(const Environment& environment) {
  constexpr const char* kName = "COHORT_JOB_ID";
  return checked_job_id(environment(kName).value_or(""), kName);
}

}  // namespace cohort::coordination
