#include "strategies/multi_worker/cluster_link.h"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "core/base/notice.h"
#include "strategies/cluster/coordination/own_host.h"
#include "strategies/cluster/coordination/prefixed_store.h"
#include "strategies/cluster/resolve_cluster.h"
#include "strategies/collective/make_communicators.h"

namespace cohort {
namespace {

// "host:0", which lets the system choose a port.
std::string any_port(const std::string& host) {
  return host.find(':') == std::string::npos ? host + ":0" : "[" + host + "]:0";
}

// The group by which the replicas of a strategy reduce.
constexpr std::string_view kReplicas = "replicas";

// How so many workers are connected, for people.
std::string describe(const ConnectedGroup& group, int workers) {
  std::string text = str("cohort: ", workers, " workers");
  if (group.hosts > 0) text += str(" on ", group.hosts, group.hosts == 1 ? " host" : " hosts");
  text += str(" are connected by ", group.connection);
  return group.reason.empty() ? text : str(text, " (", group.reason, ")");
}

// Makes the job fail, if it has not ended meanwhile.
void report_to(Membership& membership, const Error& error) {
  try {
    membership.report(error);
  } catch (const Error&) {
  }
}

class ClusterLink final : public WorkerLink {
 public:
  ClusterLink(std::unique_ptr<Membership> membership, CommunicationBackend backend,
              std::string address, std::string address_as_written, const MembershipOptions& options)
      : membership_(std::move(membership)),
        user_store_(membership_->store(), "user/"),
        backend_(backend),
        address_(std::move(address)),
        address_as_written_(std::move(address_as_written)),
        tls_(options.tls),
        allow_plaintext_(options.allow_plaintext),
        watch_(membership_->on_failure([this](const Error&) {
          // So that nobody waits between looking and sleeping.
          const std::lock_guard lock(mutex_);
          failed_ = true;
          changed_.notify_all();
        })) {}

  int rank() const override { return membership_->rank(); }
  int size() const override { return membership_->size(); }
  std::string name(int rank) const override { return membership_->task_name(rank); }

  std::vector<std::unique_ptr<Communicator>> connect(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit) override {
    std::vector<std::string> tasks;
    for (int r = 0; r < size(); ++r) tasks.push_back(this->name(r));
    // Communicators may outlive this link.
    const auto report = [membership = std::weak_ptr(membership_)](const Error& error) {
      if (const auto joined = membership.lock()) report_to(*joined, error);
    };
    try {
      return make_group(name, local, limit, std::move(tasks), report);
    } catch (const Error& error) {
      // The others may have their group, or wait for this task, and have no way to know.
      report(error);
      if (const auto failure = membership_->failure()) throw *failure;
      throw;
    }
  }

  KeyValueStore& store() override { return user_store_; }
  KeyValueStore& own_store() override { return membership_->store(); }
  void barrier(const std::string& name, std::chrono::milliseconds timeout) override {
    membership_->barrier(name, timeout);
  }

  std::map<std::string, std::chrono::nanoseconds> take_sending_times() override {
    const std::lock_guard lock(sent_->mutex);
    return std::exchange(sent_->times, {});
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
  // By task; of the mean of this worker's ranks, which send side by side.
  struct Sent {
    std::mutex mutex;
    std::map<std::string, std::chrono::nanoseconds> times;
  };

  std::vector<std::unique_ptr<Communicator>> make_group(
      const std::string& name, int local, std::optional<std::chrono::milliseconds> limit,
      std::vector<std::string> tasks, std::function<void(const Error&)> on_unreachable) {
    KeyValueStore& store = membership_->store();
    const auto add_sent = [sent = sent_, local](const std::string& task,
                                                std::chrono::nanoseconds time) {
      const std::lock_guard lock(sent->mutex);
      sent->times[task] += time / local;
    };
    ConnectedGroup group = make_communicators(
        {.store = &store,
         .store_on_time_out = std::shared_ptr<KeyValueStore>(membership_, &store),
         .name = str(name, "/", uses_[name]++),
         .process = rank(),
         .processes = size(),
         .ranks_per_process = local,
         .tasks = std::move(tasks),
         .backend = backend_,
         .limit = limit,
         .address = address_,
         .address_as_written = address_as_written_,
         .tls = tls_,
         .job_id = membership_->job_id(),
         .allow_plaintext = allow_plaintext_,
         .on_unreachable = std::move(on_unreachable),
         .on_sent = add_sent});
    if (name == kReplicas && rank() == 0) tell(describe(group, size()));
    return std::move(group.communicators);
  }

  // Again only where workers that connect anew are connected in another way.
  void tell(const std::string& connection) {
    if (connection != told_) print_notice(connection + "\n");
    told_ = connection;
  }

  const std::shared_ptr<Membership> membership_;
  PrefixedStore user_store_;  // groups keep theirs under their names, which begin otherwise
  const CommunicationBackend backend_;
  const std::string address_, address_as_written_;
  const TlsFiles tls_;
  const bool allow_plaintext_;
  const std::shared_ptr<Sent> sent_ = std::make_shared<Sent>();  // communicators may outlive this
  std::map<std::string, int> uses_;                              // of a name
  std::string told_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool failed_ = false;
  FailureWatch watch_;  // last: it uses what is above
};

}  // namespace

std::shared_ptr<WorkerLink> join_cluster(const ClusterResolver& resolver,
                                         const MembershipOptions& options,
                                         CommunicationBackend backend) {
  note_use_of_cluster();
  backend_asked_for(backend);  // a wrong one is told to a process alone, too
  if (resolver.world().size == 1) return make_in_process_links(1).front();
  check_own_name(resolver);
  auto membership = Membership::join(resolver, options);
  const std::string host = own_host(resolver, [&] { return membership->failure(); });
  return std::make_shared<ClusterLink>(std::move(membership), backend, any_port(host),
                                       own_address_as_written(resolver), options);
}

}  // namespace cohort
