#include "strategies/cluster/settings.h"

#include <algorithm>
#include <mutex>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

constexpr std::string_view kPrefix = "COHORT_";

constexpr std::string_view kSettings[] = {
    "COHORT_ALLOW_PLAINTEXT",
    "COHORT_COLLECTIVE_BACKEND",
    "COHORT_FLIGHT_RECORDER_FILE",
    "COHORT_FLIGHT_RECORDER_SIZE",
    "COHORT_JOB_ID",
    "COHORT_KUBERNETES_PODS",
    "COHORT_KUBERNETES_PORT",
    "COHORT_KUBERNETES_SERVICE",
    "COHORT_LISTEN_FD",
    "COHORT_MAX_RESTARTS",
    "COHORT_MAX_TASK_RESTARTS",
    "COHORT_PROFILE",
    "COHORT_RESTART_COUNT",
    "COHORT_STALL_WARNING_SECONDS",
    "COHORT_TASK_RESTART_COUNT",
    "COHORT_TCP_CHECK_PAYLOADS",
    "COHORT_TLS_CA",
    "COHORT_TLS_CERT",
    "COHORT_TLS_KEY",
    "COHORT_TLS_LEADER_NAME",
    "COHORT_TLS_REQUIRE_TASK",
};
static_assert(std::ranges::is_sorted(kSettings));

// Where scripts find cohort-run, and what tests tell each other.
bool is_of_scripts_or_tests(std::string_view name) {
  return name == "COHORT_RUN" || name.starts_with("COHORT_TEST_");
}

// The setting that `name` was meant to be, or "". All begin alike, which makes none of them near.
std::string_view meant_by(std::string_view name) {
  std::vector<std::string_view> ends;
  for (const std::string_view setting : kSettings) ends.push_back(setting.substr(kPrefix.size()));
  return nearest(name.substr(kPrefix.size()), ends);
}

}  // namespace

std::span<const std::string_view> settings() { return kSettings; }

std::vector<std::string> warnings_of_settings(const std::vector<std::string>& names) {
  std::vector<std::string> warnings;
  for (const std::string& name : names) {
    if (!name.starts_with(kPrefix) || is_of_scripts_or_tests(name) ||
        std::ranges::binary_search(kSettings, name))
      continue;
    const std::string_view meant = meant_by(name);
    warnings.push_back(str("warning: ", name, " is no setting of Cohort and has no effect",
                           meant.empty() ? "" : str("; did you mean ", kPrefix, meant, "?")));
  }
  return warnings;
}

void warn_of_unknown_settings() {
  static std::once_flag warned;
  std::call_once(warned, [] {
    std::vector<std::string> names;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      names.emplace_back(text.substr(0, text.find('=')));
    }
    for (const std::string& warning : warnings_of_settings(names)) print_notice(warning + "\n");
  });
}

}  // namespace cohort
