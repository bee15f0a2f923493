#pragma once

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strategies/multi_worker_mirrored_strategy.h"

namespace cohort::testing {

// Calls `body` on a thread for each worker, with a strategy of its own, as the processes of a job
// would. The result has what() of the error that left the worker's body, or nothing.
inline std::vector<std::string> on_workers(
    int workers, const std::function<void(MultiWorkerMirroredStrategy&)>& body,
    MultiWorkerMirroredStrategy::Options options = {.devices = {"cpu:0"}}) {
  std::vector<std::string> errors(static_cast<size_t>(workers));
  std::vector<std::thread> threads;
  for (const auto& link : make_in_process_links(workers)) {
    options.link = link;
    threads.emplace_back([&body, &errors, options] {
      try {
        MultiWorkerMirroredStrategy strategy(options);
        body(strategy);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(options.link->rank())] = error.what();
      }
    });
  }
  options.link = nullptr;  // a worker's link ends with its strategy
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The same, of workers that all end well.
inline void on_good_workers(int workers,
                            const std::function<void(MultiWorkerMirroredStrategy&)>& body,
                            const MultiWorkerMirroredStrategy::Options& options = {
                                .devices = {"cpu:0"}}) {
  for (const std::string& error : on_workers(workers, body, options)) EXPECT_EQ(error, "");
}

}  // namespace cohort::testing
