#include "strategies/parameter_server/task_pool.h"

#include <new>
#include <utility>

#include "core/base/start_threads.h"

namespace cohort::parameter_server {

TaskPool::TaskPool(int num_threads)
    : threads_(start_threads(
          num_threads, [this](int) { work(); }, [this](const Error&) { end_threads(); })) {}

TaskPool::~TaskPool() { stop(); }

void TaskPool::stop() {
  end_threads();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void TaskPool::end_threads() {
  std::deque<std::function<void()>> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(waiting_);
  }
  wake_.notify_all();
}

void TaskPool::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    waiting_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void TaskPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::function<void()> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::bad_alloc&) {  // who waits for it does so until its time is over
    }
    task = nullptr;  // what it holds is let go of outside the lock
    lock.lock();
  }
}

}  // namespace cohort::parameter_server
