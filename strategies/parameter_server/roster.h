#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace cohort::parameter_server {

// One start of a task, as its requests say it.
struct Start {
  Start(std::string name, uint64_t number) : task(std::move(name)), incarnation(number) {}
  const std::string task;
  const uint64_t incarnation;
  std::atomic<bool> retired = false;  // a later start has taken its place
};

// Which start of each task is the present one: the last that has come. Thread-safe.
class Roster {
 public:
  // The present start; `incarnation` becomes it when it is new. kFailedPrecondition where a later
  // start has been seen, and kResourceExhausted for more tasks than any job has.
  std::shared_ptr<Start> enter(const std::string& task, uint64_t incarnation);
  // Whether anybody has come.
  bool anybody() const;

 private:
  struct Task {
    std::shared_ptr<Start> present;
    std::set<uint64_t> retired;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Task> tasks_;
};

// kFailedPrecondition, naming the task, where a later start has taken its place.
void refuse_if_retired(const Start& start);
// Nothing is asked where there is none.
inline void refuse_if_retired(const std::shared_ptr<const Start>& start) {
  if (start) refuse_if_retired(*start);
}

}  // namespace cohort::parameter_server
