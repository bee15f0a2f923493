#include "strategies/collective/host/gathered_values.h"

#include <algorithm>

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/time_limits.h"

namespace cohort {

using Clock = std::chrono::steady_clock;

GatheredValues::GatheredValues(KeyValueStore& store, std::string group, int process, int processes,
                               std::chrono::milliseconds limit, std::vector<std::string> tasks)
    : store_(store),
      group_(std::move(group)),
      process_(process),
      processes_(processes),
      limit_(clamped(limit)),
      tasks_(std::move(tasks)),
      deadline_(Clock::now() + limit_) {}

std::vector<std::string> GatheredValues::gather(std::string_view kind, std::string_view value) {
  store_.set(name(kind, process_), value);
  std::vector<std::string> values;
  std::vector<int> missing;
  for (int p = 0; p < processes_; ++p) {
    try {
      values.push_back(store_.get(name(kind, p), rest()));
    } catch (const Error& error) {
      if (error.code() != Code::kDeadlineExceeded) throw;
      missing.push_back(p);
    }
  }
  if (!missing.empty()) miss(missing);
  return values;
}

void GatheredValues::miss(const std::vector<int>& processes) const {
  std::vector<std::string> names;
  for (const int p : processes)
    names.push_back(tasks_.empty() ? str(p)
                                   : str(tasks_[static_cast<size_t>(p)], " (process ", p, ")"));
  throw Error(
      Code::kDeadlineExceeded,
      str("of ", processes_, " processes of group \"", group_, "\" these have not come within ",
          limit_.count(), " ms: ", comma_separated(names)),
      tasks_.empty() ? "" : tasks_[static_cast<size_t>(processes.front())]);
}

void GatheredValues::set(std::string_view key, std::string_view value) {
  store_.set(name(key), value);
}

std::string GatheredValues::get(std::string_view key) { return store_.get(name(key), rest()); }

void GatheredValues::forget(const std::vector<std::string>& kinds,
                            const std::vector<std::string>& keys) {
  const std::string count = name("done");
  if (store_.add(count, 1) < processes_) return;
  for (const std::string& kind : kinds)
    for (int p = 0; p < processes_; ++p) store_.erase(name(kind, p));
  for (const std::string& key : keys) store_.erase(name(key));
  store_.erase(count);
}

std::string GatheredValues::name(std::string_view key) const { return str(group_, "/", key); }

std::string GatheredValues::name(std::string_view kind, int process) const {
  return str(group_, "/", kind, "/", process);
}

std::chrono::milliseconds GatheredValues::rest() const {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now()),
                  std::chrono::milliseconds::zero());
}

}  // namespace cohort
