#include "benchmarks/task_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/base/program.h"

namespace cohort::benchmarks {
namespace {

constexpr std::chrono::seconds kPatience(30);
constexpr std::chrono::milliseconds kLookInterval(2);

}  // namespace

TaskProcess& TaskGroup::start(std::string name, std::function<void()> body) {
  return *tasks_.emplace_back(std::make_unique<TaskProcess>(std::move(name), std::move(body)));
}

std::string TaskGroup::notices() const {
  std::string text;
  for (const auto& task : tasks_)
    for (const auto& line : task->notices()) text += str("\n  ", task->name(), ": ", line.text);
  return text;
}

void TaskGroup::wait_until(const std::string& what, const std::function<bool()>& is_so,
                           std::chrono::nanoseconds expected) {
  const Time begin = std::chrono::steady_clock::now(), deadline = begin + expected + kPatience;
  for (;;) {
    for (const auto& task : tasks_) {
      task->read();
      if (task->has_ended_by_itself())
        fail(Code::kAborted, task->name(), " has ended with code ", task->exit_code(), " before ",
             what, notices());
    }
    if (is_so()) return;
    if (interrupted()) fail(Code::kCancelled, "interrupted before ", what);
    if (std::chrono::steady_clock::now() > deadline)
      fail(Code::kDeadlineExceeded, "waited for ",
           std::chrono::duration_cast<std::chrono::seconds>(deadline - begin).count(), " s until ",
           what, notices());
    std::this_thread::sleep_for(kLookInterval);
  }
}

void TaskGroup::run_for(std::chrono::nanoseconds duration) {
  const Time end = std::chrono::steady_clock::now() + duration;
  wait_until(
      "the time is over", [end] { return std::chrono::steady_clock::now() >= end; }, duration);
}

void TaskGroup::end(const std::string& what, const std::vector<TaskProcess*>& tasks) {
  for (TaskProcess* task : tasks) task->ask_to_end();
  wait_until(what, [&] {
    return std::ranges::all_of(tasks, [](TaskProcess* task) { return task->has_ended(); });
  });
  for (const TaskProcess* task : tasks)
    if (const int code = task->exit_code(); code != 0 && code != kExitResumable)
      fail(Code::kAborted, task->name(), " was asked to end, and did with code ", code, notices());
}

}  // namespace cohort::benchmarks
