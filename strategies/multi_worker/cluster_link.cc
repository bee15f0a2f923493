#include "strategies/multi_worker/cluster_link.h"

#include <condition_variable>
#include <map>
#include <mutex>

#include "strategies/collective/make_communicators.h"

namespace cohort {
namespace {

class ClusterLink final : public WorkerLink {
 public:
  explicit ClusterLink(std::unique_ptr<Membership> membership)
      : membership_(std::move(membership)), watch_(membership_->on_failure([this](const Error&) {
          // So that nobody waits between looking and sleeping.
          const std::lock_guard lock(mutex_);
          failed_ = true;
          changed_.notify_all();
        })) {}

  int rank() const override { return membership_->rank(); }
  int size() const override { return membership_->size(); }
  std::string name(int rank) const override { return membership_->task_name(rank); }

  std::vector<std::unique_ptr<Communicator>> connect(const std::string& name, int local) override {
    return make_communicators({.store = &membership_->store(),
                               .name = str(name, "/", uses_[name]++),
                               .process = rank(),
                               .processes = size(),
                               .ranks_per_process = local})
        .communicators;
  }

  std::optional<Error> failure(std::chrono::milliseconds timeout) override {
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, timeout, [&] { return failed_; });
    }
    return membership_->failure();
  }

  FailureWatch on_failure(std::function<void(const Error&)> callback) override {
    return membership_->on_failure(std::move(callback));
  }
  void report(const Error& error) override { membership_->report(error); }
  void leave(std::chrono::milliseconds timeout) override { membership_->leave(timeout); }

 private:
  const std::unique_ptr<Membership> membership_;
  std::map<std::string, int> uses_;  // of a name
  std::mutex mutex_;                 // guards what follows
  std::condition_variable changed_;
  bool failed_ = false;
  FailureWatch watch_;  // last: it uses what is above
};

}  // namespace

std::shared_ptr<WorkerLink> join_cluster(const ClusterResolver& resolver,
                                         const MembershipOptions& options) {
  return std::make_shared<ClusterLink>(Membership::join(resolver, options));
}

}  // namespace cohort
