#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>

#include "core/base/cancellation.h"

namespace cohort::data {

// Starts a thread of a pipeline, which works beside a device: its own parallel_for() calls run
// inline, so that it takes one core and no more. It is cancelled (core/base/cancellation.h) when it
// is to stop, so that it does not wait, or search for an element, in vain. `body` must not throw.
// kResourceExhausted when there is no thread left.
std::jthread start_background(std::function<void(std::stop_token)> body);

// Waits until `done` holds, of which `changed` tells; kCancelled where this thread is cancelled
// first.
template <typename Done>
void wait_cancellably(std::condition_variable_any& changed, std::unique_lock<std::mutex>& lock,
                      const Done& done) {
  constexpr std::chrono::milliseconds kInterval(20);  // between two looks
  while (!changed.wait_for(lock, kInterval, done)) check_cancelled();
}

}  // namespace cohort::data
