#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace cohort::parameter_server {

// Dense updates of shards of so many bytes and more are for a team: of smaller ones there are many
// at a time, each on a thread of the server's.
inline constexpr size_t kTeamBytes = 8 << 20;

// A thread that leads a team of others, on which large updates are made one after the other.
// Thread-safe.
class UpdateTeam {
 public:
  explicit UpdateTeam(int threads);
  ~UpdateTeam();
  UpdateTeam(const UpdateTeam&) = delete;
  UpdateTeam& operator=(const UpdateTeam&) = delete;

  // Of the plans that it runs (PlanOptions::threads).
  int threads() const { return threads_; }
  // Calls `work`, which compiles or runs such a plan, on the leader, and waits. Throws what it
  // throws, and nothing else: takes no memory, so that an update which has been written down is
  // made.
  void run(const std::function<void()>& work);

 private:
  void lead();

  const int threads_;
  std::mutex turn_;   // held by whose work it is
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  const std::function<void()>* work_ = nullptr;
  std::exception_ptr error_;  // of the last work
  bool ending_ = false;
  std::thread leader_;
};

}  // namespace cohort::parameter_server
