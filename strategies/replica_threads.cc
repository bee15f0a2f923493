#include "strategies/replica_threads.h"

#include "core/base/start_threads.h"

namespace cohort {

ReplicaThreads::ReplicaThreads(int count)
    : threads_(start_threads(
          count, [this](int replica) { loop(replica); }, [this](const Error&) { end_threads(); })) {
}

ReplicaThreads::~ReplicaThreads() {
  end_threads();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::end_threads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
}

void ReplicaThreads::run(const std::function<void(int)>& work) {
  process_.check("this strategy");
  std::unique_lock lock(mutex_);
  work_ = &work;
  unfinished_ = static_cast<int>(threads_.size());
  ++generation_;
  begun_.notify_all();
  ended_.wait(lock, [&] { return unfinished_ == 0; });
}

void ReplicaThreads::loop(int replica) {
  int64_t done = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    begun_.wait(lock, [&] { return stopping_ || generation_ != done; });
    if (stopping_) return;
    done = generation_;
    const auto& work = *work_;
    lock.unlock();
    work(replica);
    lock.lock();
    if (--unfinished_ == 0) ended_.notify_all();
  }
}

}  // namespace cohort
