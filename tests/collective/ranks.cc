#include "tests/collective/ranks.h"

namespace cohort::testing {

void on_ranks(const Group& group, const RankWork& work) {
  std::mutex mutex;
  std::condition_variable ended;
  size_t running = group.size();
  std::vector<std::thread> threads;
  for (const auto& communicator : group)
    threads.emplace_back([&] {
      try {
        work(communicator->rank(), *communicator);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << communicator->rank() << ": " << error.what();
        communicator->abort(error);
      }
      if (::testing::Test::HasFatalFailure())
        communicator->abort(Error(Code::kAborted, "a rank of this test has failed"));
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_one();
    });
  {
    std::unique_lock lock(mutex);
    if (!ended.wait_for(lock, kHangLimit, [&] { return running == 0; })) {
      ADD_FAILURE() << running << " ranks still run after " << kHangLimit.count() << " s";
      lock.unlock();
      for (const auto& communicator : group)
        communicator->abort(Error(Code::kDeadlineExceeded, "the test hangs"));
    }
  }
  for (auto& thread : threads) thread.join();
}

void on_ranks(int size, const RankWork& work, InProcessReduction reduction) {
  on_ranks(make_in_process_communicators(size, reduction), work);
}

}  // namespace cohort::testing
