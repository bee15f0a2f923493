#include "strategies/collective/hierarchical/lookout.h"

#include <chrono>

#include "core/base/error.h"
#include "core/base/start_threads.h"

namespace cohort::hierarchical {
namespace {

constexpr std::chrono::milliseconds kInterval(100);

}  // namespace

Lookout::Lookout(const std::function<void()>& check, Communicator& group)
    : check_(check), group_(group) {
  if (check_) thread_ = start_thread([this] { run(); });
}

Lookout::~Lookout() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Lookout::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return ended_; })) {
    try {
      check_();
    } catch (const Error& error) {
      return group_.abort(error);
    }
  }
}

}  // namespace cohort::hierarchical
