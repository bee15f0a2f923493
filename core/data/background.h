#pragma once

#include <functional>
#include <stop_token>
#include <thread>

namespace cohort::data {

// Starts a thread of a pipeline, which works beside a device: its own parallel_for() calls run
// inline, so that it takes one core and no more. `body` must not throw. kResourceExhausted when
// there is no thread left.
std::jthread start_background(std::function<void(std::stop_token)> body);

}  // namespace cohort::data
