#include "strategies/coordinator/remote_value.h"

#include <utility>

#include "strategies/coordinator/remote_result.h"
#include "strategies/coordinator/waiting.h"

namespace cohort {

namespace coordinator {

void RemoteResult::set(std::vector<Tensor> values) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ready_, true)) return;
  values_ = std::move(values);
  changed_.notify_all();
}

void RemoteResult::set(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ready_, true)) return;
  error_ = error;
  changed_.notify_all();
}

bool RemoteResult::is_ready() const {
  const std::lock_guard lock(mutex_);
  return ready_;
}

std::vector<Tensor> RemoteResult::wait(std::optional<std::chrono::milliseconds> timeout) const {
  std::unique_lock lock(mutex_);
  if (!wait_interruptibly(lock, changed_, deadline_after(timeout), [&] { return ready_; }))
    fail(Code::kDeadlineExceeded, "the function has not been executed within ", timeout->count(),
         " ms");
  if (error_) throw *error_;
  return values_;
}

}  // namespace coordinator

bool RemoteValue::is_ready() const { return result_->is_ready(); }

std::vector<Tensor> RemoteValue::fetch(std::optional<std::chrono::milliseconds> timeout) const {
  std::vector<Tensor> values = result_->wait(timeout);
  if (result_->replicas() > 1 && !values.empty())
    cohort::fail(Code::kFailedPrecondition, result_->replicas(),
                 " replicas of a worker have computed this value: fetch_per_replica() has that of "
                 "each, and Strategy::reduce makes one of them");
  return values;
}

std::vector<PerReplica<Tensor>> RemoteValue::fetch_per_replica(
    std::optional<std::chrono::milliseconds> timeout) const {
  const std::vector<Tensor> values = result_->wait(timeout);
  const auto replicas = static_cast<size_t>(result_->replicas());
  const size_t results = values.size() / replicas;
  if (values.size() != results * replicas)
    cohort::fail(Code::kDataLoss, "a worker of ", replicas, " replicas answers with ",
                 values.size(), " values");
  std::vector<PerReplica<Tensor>> all(results, PerReplica<Tensor>(replicas));
  for (size_t i = 0; i < results; ++i)
    for (size_t r = 0; r < replicas; ++r) all[i][r] = values[r * results + i];
  return all;
}

Tensor RemoteValue::get(std::optional<std::chrono::milliseconds> timeout) const {
  std::vector<Tensor> values = fetch(timeout);
  if (values.size() != 1)
    invalid("get() is for functions with one result; this one has ", values.size());
  return std::move(values[0]);
}

}  // namespace cohort
