#include "strategies/parameter_server/update_team.h"

#include <future>
#include <memory>

namespace cohort::parameter_server {

void UpdateTeam::run(const std::function<void()>& work) {
  const auto task = std::make_shared<std::packaged_task<void()>>(work);
  std::future<void> done = task->get_future();
  leader_.run([task] { (*task)(); });
  done.get();
}

}  // namespace cohort::parameter_server
