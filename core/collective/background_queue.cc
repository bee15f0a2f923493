#include "core/collective/background_queue.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/start_threads.h"
#include "core/base/threads.h"

namespace cohort {

BackgroundQueue::~BackgroundQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int64_t BackgroundQueue::start(const Call& call) {
  const Lock lock(mutex_);
  if (!thread_.joinable()) thread_ = start_thread([this] { loop(); });
  operations_.push_back({started_, call});
  changed_.notify_all();
  return started_++;
}

int64_t BackgroundQueue::start_alone(const Call& call) {
  Lock lock(mutex_);
  const int64_t id = started_++;
  run(operations_.emplace_back(Operation{id, call}), lock);
  return id;
}

void BackgroundQueue::wait(int64_t id) {
  Lock lock(mutex_);
  while (true) {
    const auto operation = find(id);
    if (operation->state == State::kEnded) {
      const std::exception_ptr error = operation->error;
      operations_.erase(operation);
      if (error) std::rethrow_exception(error);
      return;
    }
    advance(lock);
  }
}

bool BackgroundQueue::is_done(int64_t id) {
  const Lock lock(mutex_);
  return find(id)->state == State::kEnded;
}

void BackgroundQueue::drain() {
  Lock lock(mutex_);
  while (next() != nullptr) advance(lock);
}

void BackgroundQueue::loop() {
  set_num_threads(1);  // a team of its own would compete with the replica's
  Lock lock(mutex_);
  while (!stopping_) {
    if (next() != nullptr)
      advance(lock);
    else
      changed_.wait(lock);
  }
}

std::vector<BackgroundQueue::Operation>::iterator BackgroundQueue::find(int64_t id) {
  const auto operation = std::find_if(operations_.begin(), operations_.end(),
                                      [&](const Operation& o) { return o.id == id; });
  if (operation == operations_.end())
    invalid("there is no operation ", id,
            " to wait for: it was waited for already, or is not one of this communicator's");
  return operation;
}

BackgroundQueue::Operation* BackgroundQueue::next() {
  const auto next = std::find_if(operations_.begin(), operations_.end(),
                                 [](const Operation& o) { return o.state != State::kEnded; });
  return next == operations_.end() ? nullptr : &*next;
}

void BackgroundQueue::advance(Lock& lock) {
  Operation& operation = *next();
  if (operation.state == State::kRunning)
    changed_.wait(lock);
  else
    run(operation, lock);
}

void BackgroundQueue::run(Operation& operation, Lock& lock) {
  operation.state = State::kRunning;
  const Operation running = operation;  // the list may move
  std::exception_ptr error;
  lock.unlock();
  try {
    run_(running.call);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  const auto ended = find(running.id);
  ended->state = State::kEnded;
  ended->error = error;
  changed_.notify_all();
}

}  // namespace cohort
