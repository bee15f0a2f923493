#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/distribute/workers.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {

// The workers of a job, over a communicator with one rank for each. An exchange of a few bytes is
// one collective; it also tells of errors and of requests to stop, and compares topics.
class WorkerGroup final : public Workers {
 public:
  // `limit`: how long one worker may wait for the others in one call. `before_failing` is called by
  // fail(), to wake up those who wait for this worker elsewhere.
  WorkerGroup(std::shared_ptr<WorkerLink> link, std::chrono::milliseconds limit,
              std::function<void(const Error&)> before_failing);

  int rank() const override { return link_->rank(); }
  int size() const override { return link_->size(); }
  std::string name(int rank) const override { return link_->name(rank); }
  std::vector<std::string> exchange(const std::string& topic, std::string_view value) override;
  void broadcast(const std::string& topic, void* data, size_t bytes) override;
  [[noreturn]] void fail(const Error& error) override;
  bool stop_requested() const override;

  // Ends every present and later call with `error`.
  void abort(const Error& error);
  // `error`, or the failure of the job that is behind it; where there is none although `error`
  // names another worker that cannot be reached, it becomes one.
  Error cause_of(const Error& error) const;
  // The last error that all workers have thrown together.
  std::optional<Error> shared_error() const;

 private:
  struct Record;

  // What all workers say; throws what is wrong with it. `error`: what this worker fails with.
  std::vector<Record> meet(const std::string& topic, std::string_view value, const Error* error);
  std::vector<std::string> gather(std::string_view value, const std::vector<int64_t>& bytes);
  [[noreturn]] void throw_failure(const std::vector<std::string>& details);
  [[noreturn]] void throw_mismatch(const std::vector<std::string>& details);
  [[noreturn]] void throw_shared(const Error& error);
  void run(const std::string& topic, const Call& call);
  bool is_other(const std::string& name) const;

  const std::shared_ptr<WorkerLink> link_;
  const std::unique_ptr<Communicator> communicator_;
  const std::function<void(const Error&)> before_failing_;
  std::mutex calling_;        // one call at a time
  mutable std::mutex mutex_;  // guards what follows
  bool stop_requested_ = false;
  std::optional<Error> shared_error_;
};

}  // namespace cohort
