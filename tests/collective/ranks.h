#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/collective/communicator.h"

namespace cohort::testing {

// The communicators of the ranks that live in this process: of all ranks, where they are threads.
using Group = std::vector<std::unique_ptr<Communicator>>;
using RankWork = std::function<void(int rank, Communicator& communicator)>;

// What no test needs, however slow the machine: a group that hangs is then ended, and the test
// fails.
inline constexpr std::chrono::seconds kHangLimit{120};

// Runs `work(rank, communicator)` on one thread for each rank of `group`. An exception that leaves
// `work`, or a failed ASSERT, ends the group so that nobody waits for that rank.
void on_ranks(const Group& group, const RankWork& work);
// The same for ranks of a new group in this process.
void on_ranks(int size, const RankWork& work,
              InProcessReduction reduction = InProcessReduction::kSlices);

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
