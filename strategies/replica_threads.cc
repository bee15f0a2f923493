#include "strategies/replica_threads.h"

namespace cohort {

ReplicaThreads::ReplicaThreads(int count) {
  for (int r = 0; r < count; ++r) threads_.emplace_back([this, r] { loop(r); });
}

ReplicaThreads::~ReplicaThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ReplicaThreads::run(const std::function<void(int)>& work) {
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
