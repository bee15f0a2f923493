#include <condition_variable>
#include <map>
#include <mutex>
#include <set>

#include "core/base/comma_separated.h"
#include "core/base/quote.h"
#include "core/base/time_limits.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cross_device/time_limit.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {
namespace {

// One use of a name by each worker.
struct Barrier {
  std::set<int> present;         // ranks that have come in time
  std::optional<Error> failure;  // once somebody has waited in vain
  int returned = 0;              // ranks
};

// What the workers share.
struct Job {
  explicit Job(int count) : size(count) {}

  const int size;
  InMemoryStore store;
  std::mutex calling;  // callbacks
  std::mutex mutex;    // guards what follows
  std::condition_variable changed;
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups;
  std::map<std::string, Barrier> barriers;
  std::optional<Error> failure;
  int left = 0;
  coordination::FailureCallbacks callbacks;
};

class InProcessLink final : public WorkerLink {
 public:
  InProcessLink(std::shared_ptr<Job> job, int rank) : job_(std::move(job)), rank_(rank) {}
  ~InProcessLink() override {
    if (!left_)
      report(Error(Code::kUnavailable, str(name(rank_), " has ended without leaving the job"),
                   name(rank_)));
  }

  int rank() const override { return rank_; }
  int size() const override { return job_->size; }
  std::string name(int rank) const override { return str("worker:", rank); }

  std::vector<std::unique_ptr<Communicator>> connect(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit) override {
    const std::lock_guard lock(job_->mutex);
    if (job_->failure) throw *job_->failure;
    auto& group = job_->groups[str(name, " ", uses_[name]++, " of ", local)];
    if (group.empty()) group = make_group(local, limit);
    std::vector<std::unique_ptr<Communicator>> own;
    for (int i = 0; i < local; ++i)
      own.push_back(std::move(group[static_cast<size_t>(rank_ * local + i)]));
    return own;
  }

  KeyValueStore& store() override { return job_->store; }

  void barrier(const std::string& name, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(job_->mutex);
    const std::string use = str(name, " ", barrier_uses_[name]++);
    Barrier& barrier = job_->barriers[use];
    if (!barrier.failure) barrier.present.insert(rank_);
    job_->changed.notify_all();
    const bool is_over = job_->changed.wait_for(lock, clamped(timeout), [&] {
      return job_->failure || barrier.failure ||
             static_cast<int>(barrier.present.size()) == job_->size;
    });
    if (!is_over) {
      barrier.failure = late(name, clamped(timeout), barrier.present);
      job_->changed.notify_all();
    }
    const auto failure = job_->failure ? job_->failure : barrier.failure;
    if (++barrier.returned == job_->size) job_->barriers.erase(use);
    if (failure) throw *failure;
  }

  std::optional<Error> failure(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(job_->mutex);
    job_->changed.wait_for(lock, timeout, [&] { return job_->failure.has_value(); });
    return job_->failure;
  }

  FailureWatch on_failure(std::function<void(const Error&)> callback) override {
    const uint64_t id = callbacks_->add(std::move(callback));
    if (const auto known = failure(std::chrono::milliseconds(0))) call_all(*known);
    return FailureWatch(callbacks_, id);
  }

  void report(const Error& error) override {
    {
      const std::lock_guard lock(job_->mutex);
      if (job_->failure) return;
      job_->failure = error;
    }
    job_->changed.notify_all();
    call_all(error);
  }

  void leave(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(job_->mutex);
    left_ = true;
    ++job_->left;
    job_->changed.notify_all();
    job_->changed.wait_for(lock, timeout,
                           [&] { return job_->failure || job_->left == job_->size; });
    if (job_->failure) throw *job_->failure;
  }

 private:
  std::vector<std::unique_ptr<Communicator>> make_group(
      int local, std::optional<std::chrono::milliseconds> limit) const {
    auto group = make_in_process_communicators(job_->size * local);
    if (!limit || group.size() == 1) return group;  // one rank waits for nobody
    std::vector<std::string> names;
    for (int r = 0; r < job_->size * local; ++r) names.push_back(name(r / local));
    return with_time_limit(std::move(group), *limit, names);
  }

  Error late(const std::string& barrier, std::chrono::milliseconds timeout,
             const std::set<int>& present) const {
    std::vector<std::string> missing;
    for (int r = 0; r < job_->size; ++r)
      if (!present.contains(r)) missing.push_back(name(r));
    return Error(Code::kDeadlineExceeded,
                 str("barrier ", quote(barrier), ": ", name(rank_), " has waited ",
                     coordination::in_words(timeout), " for ", comma_separated(missing), "; ",
                     present.size(), " of ", job_->size, " workers have come"),
                 missing.size() == 1 ? missing[0] : "");
  }

  void call_all(const Error& error) {
    const std::lock_guard one_at_a_time(job_->calling);
    job_->callbacks.call(error);
  }

  const std::shared_ptr<Job> job_;
  const int rank_;
  std::map<std::string, int> uses_, barrier_uses_;  // of a name
  bool left_ = false;
  // Of the job, and alive as long as it.
  const std::shared_ptr<coordination::FailureCallbacks> callbacks_{job_, &job_->callbacks};
};

}  // namespace

std::vector<std::shared_ptr<WorkerLink>> make_in_process_links(int count) {
  if (count < 1) invalid("a job needs at least 1 worker, got ", count);
  const auto job = std::make_shared<Job>(count);
  std::vector<std::shared_ptr<WorkerLink>> links;
  for (int r = 0; r < count; ++r) links.push_back(std::make_shared<InProcessLink>(job, r));
  return links;
}

}  // namespace cohort
