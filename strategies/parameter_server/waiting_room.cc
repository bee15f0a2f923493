#include "strategies/parameter_server/waiting_room.h"

#include <new>
#include <utility>

#include "core/base/start_threads.h"

namespace cohort::parameter_server {
namespace {

// Some things come about by the passing of time, such as a worker that counts no longer.
constexpr std::chrono::milliseconds kLookInterval(100);

// Whether it waits no longer.
bool has_gone_on(const WaitingRoom::Call& call) {
  try {
    const bool ready = call.is_ready();
    if (!ready && std::chrono::steady_clock::now() < call.deadline) return false;
    call.proceed(ready);
    return true;
  } catch (const std::bad_alloc&) {  // there may be some by then
    return false;
  }
}

}  // namespace

WaitingRoom::WaitingRoom() : thread_(start_thread([this] { run(); })) {}

WaitingRoom::~WaitingRoom() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void WaitingRoom::wait(Call call) {
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(std::move(call));
    ++waiting_;
    changed_ = true;
  }
  wake_.notify_all();
}

void WaitingRoom::look() {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_ == 0 || changed_) return;
    changed_ = true;
  }
  wake_.notify_all();
}

void WaitingRoom::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_ == 0)
      wake_.wait(lock, [this] { return changed_ || stopping_; });
    else
      wake_.wait_for(lock, kLookInterval, [this] { return changed_ || stopping_; });
    changed_ = false;
    std::list<Call> looked_at;
    looked_at.swap(calls_);
    lock.unlock();
    const size_t done = looked_at.remove_if(has_gone_on);
    lock.lock();
    waiting_ -= done;
    calls_.splice(calls_.begin(), looked_at);
  }
}

}  // namespace cohort::parameter_server
