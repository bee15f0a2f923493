#include <condition_variable>
#include <map>
#include <mutex>

#include "core/base/time_limits.h"
#include "strategies/cluster/coordination/barrier_table.h"
#include "strategies/cluster/coordination/in_memory_store.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cross_device/time_limit.h"
#include "strategies/multi_worker/worker_link.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// What the workers share.
struct Job {
  explicit Job(int size) : roster(World{.size = size}) {}

  // Wakes those who waited for it.
  void take(const coordination::Answers& given) {
    for (const coordination::Answer& answer : given) answers.emplace(answer.to.id, answer.error);
    changed.notify_all();
  }

  const coordination::Roster roster;
  InMemoryStore store, own_store;
  std::mutex calling;  // callbacks
  std::mutex mutex;    // guards what follows
  std::condition_variable changed;
  std::map<std::string, std::vector<std::unique_ptr<Communicator>>> groups;
  coordination::BarrierTable barriers{roster};
  uint64_t calls = 0;                                // of barrier()
  std::map<uint64_t, std::optional<Error>> answers;  // to calls that wait
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
  int size() const override { return job_->roster.size(); }
  std::string name(int rank) const override { return job_->roster.name(rank); }

  std::vector<std::unique_ptr<Communicator>> connect(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit) override {
    const std::lock_guard lock(job_->mutex);
    if (job_->failure) throw *job_->failure;
    auto& group = job_->groups[str(name, " ", uses_[name]++, " of ", local)];
    if (group.empty()) group = make_group(local, limit);
    std::vector<std::unique_ptr<Communicator>> own;
    for (int r = rank_ * local; r < (rank_ + 1) * local; ++r)
      own.push_back(std::move(group[static_cast<size_t>(r)]));
    return own;
  }

  KeyValueStore& store() override { return job_->store; }
  KeyValueStore& own_store() override { return job_->own_store; }

  void barrier(const std::string& name, std::chrono::milliseconds timeout) override {
    std::unique_lock lock(job_->mutex);
    const uint64_t call = job_->calls++;
    const auto limit = clamped(timeout);
    const auto now = Clock::now();
    job_->take(job_->barriers.arrive({rank_, call}, name, limit, now));
    while (!job_->failure && !job_->answers.contains(call))
      if (job_->changed.wait_until(lock, now + limit) == std::cv_status::timeout)
        job_->take(job_->barriers.expire(Clock::now()));
    const auto answer = job_->answers.extract(call);
    if (job_->failure) throw *job_->failure;
    if (answer.mapped()) throw *answer.mapped();
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
    job_->changed.wait_for(lock, timeout, [&] { return job_->failure || job_->left == size(); });
    if (job_->failure) throw *job_->failure;
  }

 private:
  std::vector<std::unique_ptr<Communicator>> make_group(
      int local, std::optional<std::chrono::milliseconds> limit) const {
    auto group = make_in_process_communicators(size() * local);
    if (!limit || group.size() == 1) return group;  // one rank waits for nobody
    std::vector<std::string> names;
    for (int r = 0; r < size() * local; ++r) names.push_back(name(r / local));
    return with_time_limit(std::move(group), *limit, names);
  }

  void call_all(const Error& error) {
    const std::lock_guard one_at_a_time(job_->calling);
    job_->callbacks.call(error);
  }

  const std::shared_ptr<Job> job_;
  const int rank_;
  std::map<std::string, int> uses_;  // of a name
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
