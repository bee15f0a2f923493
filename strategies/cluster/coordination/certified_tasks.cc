#include "strategies/cluster/coordination/certified_tasks.h"

#include <algorithm>

namespace cohort::coordination {
namespace {

constexpr std::string_view kScheme = "cohort://";

// Whether a part of a URI, up to the next slash, fits; takes it away.
bool takes(std::string_view& uri, std::string_view wanted, bool may_be_any) {
  const size_t end = std::min(uri.find('/'), uri.size());
  const std::string_view part = uri.substr(0, end);
  uri.remove_prefix(std::min(end + 1, uri.size()));
  return part == wanted || (may_be_any && part == "*");
}

bool fits(std::string_view uri, std::string_view job_id, std::string_view task) {
  const size_t colon = task.find(':');
  uri.remove_prefix(kScheme.size());
  return colon != std::string_view::npos && takes(uri, job_id, true) &&
         takes(uri, task.substr(0, colon), false) && takes(uri, task.substr(colon + 1), true) &&
         uri.empty();
}

}  // namespace

CertifiedTasks::CertifiedTasks(const std::vector<std::string>& names, bool required)
    : restricted_(required) {
  for (const std::string& name : names)
    if (name.starts_with(kScheme)) uris_.push_back(name);
  restricted_ |= !uris_.empty();
}

void CertifiedTasks::check(std::string_view job_id, std::string_view task) const {
  if (!restricted_) return;
  std::string all;
  for (const std::string& uri : uris_) {
    if (fits(uri, job_id, task)) return;
    all += (all.empty() ? "" : ", ") + uri.substr(0, 200);
  }
  fail(Code::kPermissionDenied, "the caller says that it is ", task, " of job \"", job_id,
       "\", but its certificate ",
       all.empty() ? "names no task, as COHORT_TLS_REQUIRE_TASK=1 demands: it needs a URI such as "
                     "cohort://*/worker/1 among its subject alternative names"
                   : "is for " + all);
}

}  // namespace cohort::coordination
