#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace cohort::parameter_server {

// One start of a task, as its requests say it.
struct Start {
  Start(std::string name, uint64_t number) : task(std::move(name)), incarnation(number) {}
  const std::string task;
  const uint64_t incarnation;
  std::atomic<bool> retired = false;  // a later start has taken its place
  std::atomic<bool> done = false;     // it has said that its work is
  uint64_t clocked = 0;               // the last of its clock's requests; used with the clocks
};

inline constexpr size_t kMaxTasks = 65536;  // more than any job has
// Each closure that is in flight, or waits in a sum of a worker, has a lane.
inline constexpr size_t kMaxLanes = 1 << 20;

// Which start of each task is the present one: the last that has come. Thread-safe.
class Roster {
 public:
  // Of `most` tasks; `what` are they, for messages. `begins` is told of each start before it
  // becomes the present one, of one after the other; where it throws, nothing changes.
  Roster(
      size_t most, std::string what,
      std::function<void(const Start& start)> begins = [](const Start&) {})
      : most_(most), what_(std::move(what)), begins_(std::move(begins)) {}

  // The present start; `incarnation` becomes it when it is new. kFailedPrecondition where a later
  // start has been seen, and kResourceExhausted for more tasks than there may be.
  std::shared_ptr<Start> enter(const std::string& task, uint64_t incarnation);
  // A later start of the task had taken the place of this one before the server was started.
  void retire(const std::string& task, uint64_t incarnation);
  // Whether anybody has come.
  bool anybody() const;
  // Whether somebody has come, and the present starts of all have done their work.
  bool all_done() const;
  // The names of those whose present starts have not.
  std::vector<std::string> unfinished() const;

 private:
  struct Task {
    std::shared_ptr<Start> present;  // null: none has come
    std::vector<uint64_t> retired;   // the last ones

    void retire(uint64_t incarnation);
  };
  const size_t most_;
  const std::string what_;
  const std::function<void(const Start& start)> begins_;
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
