#include "strategies/parameter_server/server_session.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"
#include "core/base/program.h"
#include "core/base/time_limits.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// After so long, a wait for a round looks whether its server is still the same.
constexpr std::chrono::milliseconds kLookAgain(2000);

// Work for several servers. Who waits for its end does what nobody has begun: all threads of the
// pool may be waiting, even for the one that waits here, as where the initial value of a variable
// is made from that of another.
class WorkForServers {
 public:
  // `work` is not called any more after wait() has returned.
  WorkForServers(std::vector<int> servers, const std::function<void(int)>& work)
      : servers_(std::move(servers)),
        work_(work),
        errors_(servers_.size()),
        unfinished_(servers_.size()) {}

  void take_part() {
    for (size_t i = next_++; i < servers_.size(); i = next_++) attempt(i);
  }
  // Throws what the first of those that failed has thrown.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return unfinished_ == 0; });
    const auto errors = std::exchange(errors_, {});  // threads of the pool may be the last here
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

 private:
  void attempt(size_t i) {
    std::exception_ptr error;
    try {
      work_(servers_[i]);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    errors_[i] = std::move(error);
    if (--unfinished_ == 0) changed_.notify_all();
  }

  const std::vector<int> servers_;
  const std::function<void(int)>& work_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<std::exception_ptr> errors_;
  size_t unfinished_;
};

bool waits(const ShardPull& pull) { return pull.at_least > 0; }

std::chrono::milliseconds until(Clock::time_point deadline) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
}

// Makes the pulls of a call, of which some wait.
std::vector<ShardPulled> pull_in_time(ParameterClient& client, const ServerSession::Call& call,
                                      Clock::time_point deadline) {
  for (;;) {
    const auto time = until(deadline);
    try {
      return client.update({}, call.pulls, time, kLookAgain).pulled;
    } catch (const Error& error) {
      if (error.code() != Code::kDeadlineExceeded || time <= kLookAgain ||
          until(deadline).count() <= 0)
        throw;
    }
    std::vector<ShardPull> present = call.pulls;
    for (ShardPull& pull : present) pull.at_least = 0;
    std::vector<ShardPulled> pulled = client.update({}, present, until(deadline)).pulled;
    for (size_t i = 0; i < present.size(); ++i)
      if (waits(call.pulls[i]) && pulled[i].version.epoch != call.awaited_epochs[i]) return pulled;
  }
}

}  // namespace

ServerSession::ServerSession(const std::vector<Address>& servers, ParameterClientOptions client,
                             const std::optional<ConsistencyOptions>& consistency,
                             const Environment& environment)
    : servers_(servers),
      consistency_(consistency.value_or(ConsistencyOptions{})),
      task_(client.task),
      timeout_(clamped(client.timeout)),
      // The caller's thread takes one server itself.
      pool_(std::max<int>(static_cast<int>(servers.size()) - 1, 0)) {
  if (servers.empty()) invalid("there is no parameter server to work with");
  client.consistency = consistency;
  for (const Address& server : servers) {
    client.server = str("ps:", clients_.size());
    clients_.push_back(std::make_unique<ParameterClient>(server, client, environment));
    client.incarnation = clients_.back()->incarnation();
  }
}

ServerSession::~ServerSession() {
  if (interrupted() || std::uncaught_exceptions() > 0) return;
  try {
    on_all_servers([this](int server) { client(server).say_done(); });
  } catch (const std::exception&) {  // no memory to say it
  }
}

void ServerSession::on_all_servers(const std::function<void(int)>& work) {
  std::vector<int> servers(clients_.size());
  std::iota(servers.begin(), servers.end(), 0);
  on_servers(servers, work);
}

void ServerSession::on_servers(const std::vector<int>& servers,
                               const std::function<void(int)>& work) {
  const auto all = std::make_shared<WorkForServers>(servers, work);
  try {
    for (size_t i = 1; i < servers.size(); ++i) pool_.run([all] { all->take_part(); });
  } catch (const std::bad_alloc&) {  // those who have been asked use `work`; this one does the rest
  }
  all->take_part();
  all->wait();
}

std::vector<UpdateResult> ServerSession::update(const std::vector<Call>& calls) {
  std::vector<UpdateResult> results(calls.size());
  std::vector<int> servers;
  for (size_t s = 0; s < calls.size(); ++s)
    if (!calls[s].pushes.empty() || !calls[s].pulls.empty()) servers.push_back(static_cast<int>(s));
  on_servers(servers, [&](int server) {
    const auto s = static_cast<size_t>(server);
    results[s] = update_one(server, calls[s]);
    count(server, calls[s], results[s]);
  });
  return results;
}

UpdateResult ServerSession::update_one(int server, const Call& call) {
  ParameterClient& client = this->client(server);
  if (std::ranges::none_of(call.pulls, waits)) return client.update(call.pushes, call.pulls);
  const auto deadline = Clock::now() + timeout_;
  UpdateResult result;
  // Apart from pulls that may be made several times: a push that is made again counts again.
  if (!call.pushes.empty()) result = client.update(call.pushes, {}, until(deadline));
  result.pulled = pull_in_time(client, call, deadline);
  return result;
}

void ServerSession::count(int server, const Call& call, const UpdateResult& result) {
  uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < result.pushed.size(); ++i) {
      const ShardPushed& pushed = result.pushed[i];
      lost += pushed.lost;
      counts_.late += pushed.outcome == PushOutcome::kLate;
      const bool is_empty = call.pushes[i].rows && call.pushes[i].rows->empty();
      if (pushed.outcome == PushOutcome::kApplied && !consistency_.synchronous() && !is_empty)
        counts_.add_applied(static_cast<int64_t>(pushed.staleness));
    }
    counts_.lost += static_cast<int64_t>(lost);
  }
  if (lost > 0)
    print_notice(str(task_, ": parameter server ps:", server, " at ",
                     servers_[static_cast<size_t>(server)].text(),
                     " was started again from an older snapshot: lost=", lost,
                     " pushes of this worker, each to one shard\n"));
}

PushCounts ServerSession::take_counts() {
  const std::lock_guard lock(mutex_);
  return std::exchange(counts_, {});
}

StrategyReport ServerSession::take_report() {
  const PushCounts counts = take_counts();
  StrategyReport report = counts.report();
  if (consistency_.synchronous()) report.numbers["late_updates"] = static_cast<double>(counts.late);
  return report;
}

void ServerSession::mark_pushes(const std::optional<ParameterClient::Source>& source) {
  marks_pushes_ = source.has_value();
  for (const auto& client : clients_) client->mark_pushes(source);
}

void ServerSession::cancel() {
  for (const auto& client : clients_) client->cancel();
}

void ServerSession::resume() {
  for (const auto& client : clients_) client->resume();
}

}  // namespace cohort
