#include "strategies/coordinator/questions.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

namespace cohort::coordinator {
namespace {

template <typename Promises>
void lose_all(Promises& promises, const Error& error) {
  for (auto& [id, promise] : promises) promise.set_exception(std::make_exception_ptr(error));
  promises.clear();
}

}  // namespace

std::future<Result> Questions::fetch(uint64_t id, uint64_t resource) {
  new_.push_back(Fetch{id, resource});
  return fetches_[id].get_future();
}

std::future<Status> Questions::ask_status(uint64_t id) {
  new_.push_back(AskStatus{id});
  return statuses_[id].get_future();
}

void Questions::add_new(ToWorker& message) {
  std::ranges::move(new_, std::back_inserter(message.commands));
  new_.clear();
}

bool Questions::answer(Result& result) {
  const auto asked = fetches_.find(result.id);
  if (asked == fetches_.end()) return false;
  asked->second.set_value(std::move(result));
  fetches_.erase(asked);
  return true;
}

void Questions::answer(const Status& status) {
  const auto asked = statuses_.find(status.id);
  if (asked == statuses_.end()) return;
  asked->second.set_value(status);
  statuses_.erase(asked);
}

void Questions::lose(const Error& error) {
  lose_all(fetches_, error);
  lose_all(statuses_, error);
  new_.clear();
}

}  // namespace cohort::coordinator
