#pragma once

#include <cstddef>
#include <functional>

#include "strategies/parameter_server/task_pool.h"

namespace cohort::parameter_server {

// Dense updates of shards of so many bytes and more are for a team: of smaller ones there are many
// at a time, each on a thread of the server's.
inline constexpr size_t kTeamBytes = 8 << 20;

// A thread that leads a team of others, on which large updates are made one after the other.
// Thread-safe.
class UpdateTeam {
 public:
  explicit UpdateTeam(int threads) : threads_(threads), leader_(1) {}

  // Of the plans that it runs (PlanOptions::threads).
  int threads() const { return threads_; }
  // Calls `work`, which compiles or runs such a plan, on the leader, and waits. Throws what it
  // throws.
  void run(const std::function<void()>& work);

 private:
  const int threads_;
  TaskPool leader_;
};

}  // namespace cohort::parameter_server
