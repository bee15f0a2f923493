#include "strategies/parameter_server/roster.h"

#include <algorithm>

#include "core/base/error.h"

namespace cohort::parameter_server {
namespace {

constexpr size_t kMaxRetired = 1024;  // of a task; the oldest are not told apart from new ones

[[noreturn]] void refuse_retired(const std::string& task) {
  throw Error(Code::kFailedPrecondition,
              str(task, " has been started again since; this process is an old one and must end"),
              task);
}

}  // namespace

void Roster::Task::retire(uint64_t incarnation) {
  if (std::ranges::find(retired, incarnation) != retired.end()) return;
  retired.push_back(incarnation);
  if (retired.size() > kMaxRetired) retired.erase(retired.begin());
}

void Roster::retire(const std::string& task, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  tasks_[task].retire(incarnation);
}

std::shared_ptr<Start> Roster::enter(const std::string& task, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  if (tasks_.size() >= most_ && !tasks_.contains(task))
    fail(Code::kResourceExhausted, "more than ", most_, ' ', what_);
  Task& entry = tasks_[task];
  if (entry.present && entry.present->incarnation == incarnation) return entry.present;
  if (std::ranges::find(entry.retired, incarnation) != entry.retired.end()) refuse_retired(task);
  auto start = std::make_shared<Start>(task, incarnation);
  begins_(*start);
  if (entry.present) {
    entry.retire(entry.present->incarnation);
    entry.present->retired = true;
  }
  return entry.present = std::move(start);
}

bool Roster::anybody() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(tasks_,
                             [](const auto& entry) { return entry.second.present != nullptr; });
}

bool Roster::all_done() const {
  const std::lock_guard lock(mutex_);
  bool anybody = false;
  for (const auto& [name, task] : tasks_) {
    if (task.present == nullptr) continue;
    if (!task.present->done) return false;
    anybody = true;
  }
  return anybody;
}

std::vector<std::string> Roster::unfinished() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, task] : tasks_)
    if (task.present != nullptr && !task.present->done) names.push_back(name);
  return names;
}

void refuse_if_retired(const Start& start) {
  if (start.retired) refuse_retired(start.task);
}

}  // namespace cohort::parameter_server
