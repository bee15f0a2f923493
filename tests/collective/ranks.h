#pragma once

#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"

namespace cohort::testing {

// Runs `work(rank, communicator)` on one thread for each rank. An exception that leaves `work` is a
// failure, and ends the group so that nobody waits for that rank.
template <typename Work>
void on_ranks(const std::vector<std::unique_ptr<Communicator>>& group, const Work& work) {
  std::vector<std::thread> threads;
  for (auto& communicator : group)
    threads.emplace_back([&] {
      try {
        work(communicator->rank(), *communicator);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << communicator->rank() << ": " << error.what();
        communicator->abort(error);
      }
    });
  for (auto& thread : threads) thread.join();
}

template <typename Work>
void on_ranks(int size, const Work& work,
              InProcessReduction reduction = InProcessReduction::kSlices) {
  on_ranks(make_in_process_communicators(size, reduction), work);
}

// The error that `work` throws.
template <typename Work>
Error error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(Code::kUnknown, "");
}

}  // namespace cohort::testing
