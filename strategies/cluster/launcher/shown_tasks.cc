#include "strategies/cluster/launcher/shown_tasks.h"

#include <algorithm>
#include <iterator>
#include <sstream>

#include "core/base/comma_separated.h"
#include "core/base/error.h"

namespace cohort::launcher {
namespace {

bool names(const std::string& name, const Task& task) {
  return name == task.job || name == task.name();
}

bool names_any(const std::string& name, const JobSize& size) {
  for (int i = 0; i < size.tasks; ++i)
    if (names(name, {size.job, i})) return true;
  return false;
}

std::string describe(const JobSize& size) {
  const std::string first = Task{size.job, 0}.name();
  return size.tasks == 1 ? first : str(first, " to ", Task{size.job, size.tasks - 1}.name());
}

}  // namespace

ShownTasks::ShownTasks(const std::string& list) {
  std::istringstream text(list);
  for (std::string name; std::getline(text, name, ',');) names_.push_back(name);
}

bool ShownTasks::contains(const Task& task) const {
  return names_.empty() ||
         std::ranges::any_of(names_, [&](const std::string& name) { return names(name, task); });
}

void ShownTasks::check(const std::vector<JobSize>& jobs) const {
  for (const std::string& name : names_) {
    if (std::ranges::any_of(jobs, [&](const JobSize& size) { return names_any(name, size); }))
      continue;
    std::vector<JobSize> there;
    std::ranges::copy_if(jobs, std::back_inserter(there),
                         [](const JobSize& size) { return size.tasks > 0; });
    invalid("--show: there is no task \"", name, "\": expected names of ",
            comma_separated(there, describe), ", or of jobs, as in --show=worker:0,ps");
  }
}

}  // namespace cohort::launcher
