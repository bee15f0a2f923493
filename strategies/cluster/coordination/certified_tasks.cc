#include "strategies/cluster/coordination/certified_tasks.h"

namespace cohort::coordination {
namespace {

constexpr std::string_view kScheme = "cohort://";

bool fits_part(std::string_view part, std::string_view wanted) {
  return part == wanted || part == "*";
}

// Of "cohort://JOB/TYPE/INDEX".
bool fits(std::string_view uri, std::string_view job_id, std::string_view task) {
  uri.remove_prefix(kScheme.size());
  const size_t type = uri.find('/'), index = uri.rfind('/'), colon = task.find(':');
  if (type == index || colon == std::string_view::npos) return false;
  return fits_part(uri.substr(0, type), job_id) &&
         uri.substr(type + 1, index - type - 1) == task.substr(0, colon) &&
         fits_part(uri.substr(index + 1), task.substr(colon + 1));
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
