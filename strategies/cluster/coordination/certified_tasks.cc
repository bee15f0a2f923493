#include "strategies/cluster/coordination/certified_tasks.h"

#include <algorithm>
#include <array>

#include "core/base/comma_separated.h"

namespace cohort::coordination {
namespace {

constexpr std::string_view kScheme = "cohort:";
constexpr std::string_view kBeforeJob = "cohort://";

// Whether `text` begins with `prefix`, whose letters are small, in letters of whatever case: those
// of a scheme do not matter (RFC 3986).
bool begins_with(std::string_view text, std::string_view prefix) {
  const auto is_same = [](char prefix_letter, char c) {
    return prefix_letter == (c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  };
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), is_same);
}

bool fits_part(std::string_view part, std::string_view wanted) {
  return part == wanted || part == "*";
}

// Of "cohort://JOB/TYPE/INDEX": the three, or nothing where the URI is not of this form.
std::optional<std::array<std::string_view, 3>> parts(std::string_view uri) {
  if (!begins_with(uri, kBeforeJob)) return std::nullopt;
  uri.remove_prefix(kBeforeJob.size());
  const size_t type = uri.find('/'), index = uri.rfind('/');
  if (type == index) return std::nullopt;
  return {{uri.substr(0, type), uri.substr(type + 1, index - type - 1), uri.substr(index + 1)}};
}

bool fits(std::string_view uri, std::string_view job_id, std::string_view task) {
  const auto found = parts(uri);
  if (task.ends_with(kExecutor)) task.remove_suffix(kExecutor.size());
  const size_t colon = task.find(':');
  // With any other name behind it, a task would be as many participants as it says names.
  if (!found || colon == std::string_view::npos || task.find('/') != std::string_view::npos)
    return false;
  const auto& [job, type, index] = *found;
  return fits_part(job, job_id) && type == task.substr(0, colon) &&
         fits_part(index, task.substr(colon + 1));
}

}  // namespace

CertifiedTasks::CertifiedTasks(const std::vector<std::string>& names, bool required)
    : restricted_(required) {
  for (const std::string& name : names)
    if (begins_with(name, kScheme)) uris_.push_back(name);
  restricted_ |= !uris_.empty();
}

template <typename Fits>
void CertifiedTasks::check_any(const Fits& fits, const std::string& who) const {
  if (!restricted_ || std::ranges::any_of(uris_, fits)) return;
  const auto start = [](const std::string& uri) { return uri.substr(0, 200); };
  const std::string all = comma_separated(uris_, start);
  fail(Code::kPermissionDenied, who, " has a certificate that ",
       all.empty() ? "names no task, as COHORT_TLS_REQUIRE_TASK=1 demands: it needs a URI such as "
                     "cohort://*/worker/1 among its subject alternative names"
                   : "is for " + all);
}

void CertifiedTasks::check(std::string_view job_id, std::string_view task) const {
  check_any([&](std::string_view uri) { return fits(uri, job_id, task); },
            str("who should be ", task, " of job \"", job_id, "\""));
}

void CertifiedTasks::check_type(std::string_view type) const {
  check_any(
      [&](std::string_view uri) {
        const auto found = parts(uri);
        return found && (*found)[1] == type;
      },
      str("who starts tasks of type ", type));
}

}  // namespace cohort::coordination
