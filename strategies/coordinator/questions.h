#pragma once

#include <cstdint>
#include <future>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "strategies/coordinator/messages.h"

namespace cohort::coordinator {

// What a worker is asked, and has not answered. Not synchronised.
class Questions {
 public:
  // No two questions or closures have the same id.
  std::future<Result> fetch(uint64_t id, uint64_t resource);
  std::future<Status> ask_status(uint64_t id);
  // Adds to a message those that were in none yet.
  void add_new(ToWorker& message);
  // Whether it is an answer, which is then taken.
  bool answer(Result& result);
  void answer(const Status& status);
  // There will be no answers.
  void lose(const Error& error);

 private:
  std::vector<Command> new_;
  std::unordered_map<uint64_t, std::promise<Result>> fetches_;
  std::unordered_map<uint64_t, std::promise<Status>> statuses_;
};

}  // namespace cohort::coordinator
