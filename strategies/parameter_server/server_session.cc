#include "strategies/parameter_server/server_session.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// After so long, a wait for a round looks whether its server is still the same.
constexpr std::chrono::milliseconds kLookAgain(2000);

}  // namespace

ServerSession::ServerSession(const std::vector<Address>& servers, ParameterClientOptions client,
                             const ConsistencyOptions& consistency, const Environment& environment)
    : servers_(servers),
      consistency_(consistency),
      task_(client.task),
      timeout_(client.timeout),
      // The caller's thread takes one server itself.
      pool_(std::max<int>(static_cast<int>(servers.size()) - 1, 0)) {
  if (servers.empty()) invalid("there is no parameter server to work with");
  for (const Address& server : servers) {
    client.server = str("ps:", clients_.size());
    clients_.push_back(std::make_unique<ParameterClient>(server, client, environment));
    client.incarnation = clients_.back()->incarnation();
  }
}

void ServerSession::on_servers(const std::vector<int>& servers,
                               const std::function<void(int)>& work) {
  std::vector<std::exception_ptr> errors(servers.size());
  std::mutex mutex;
  std::condition_variable changed;
  size_t unfinished = servers.size();
  const auto attempt = [&](size_t i) {
    try {
      work(servers[i]);
    } catch (...) {
      errors[i] = std::current_exception();
    }
    const std::lock_guard lock(mutex);
    if (--unfinished == 0) changed.notify_all();
  };
  for (size_t i = 1; i < servers.size(); ++i) pool_.run([&attempt, i] { attempt(i); });
  if (!servers.empty()) attempt(0);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return unfinished == 0; });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
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
  const auto waits = [](const ShardPull& pull) { return pull.at_least > 0; };
  if (std::ranges::none_of(call.pulls, waits)) return client.update(call.pushes, call.pulls);
  const auto deadline = Clock::now() + timeout_;
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      return client.update(call.pushes, call.pulls, std::min(left, kLookAgain));
    } catch (const Error& error) {
      const bool again =
          error.code() == Code::kDeadlineExceeded || error.code() == Code::kUnavailable;
      if (!again || left <= kLookAgain) throw;
    }
    std::vector<ShardPull> present = call.pulls;
    for (ShardPull& pull : present) pull.at_least = 0;
    UpdateResult result = client.update({}, present);
    for (size_t i = 0; i < present.size(); ++i)
      if (waits(call.pulls[i]) && result.pulled[i].version.epoch != call.awaited_epochs[i])
        return result;
  }
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
        ++counts_.staleness[static_cast<int64_t>(pushed.staleness)];
    }
    counts_.lost += static_cast<int64_t>(lost);
  }
  if (lost > 0)
    print_notice(str(task_, ": parameter server ps:", server, " at ",
                     servers_[static_cast<size_t>(server)].text(),
                     " was started again from an older snapshot: lost=", lost,
                     " updates of this worker\n"));
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

void ServerSession::mark_pushes(const ParameterClient::Source& source) {
  marks_pushes_ = true;
  for (const auto& client : clients_) client->mark_pushes(source);
}

void ServerSession::cancel() {
  for (const auto& client : clients_) client->cancel();
}

void ServerSession::resume() {
  for (const auto& client : clients_) client->resume();
}

}  // namespace cohort
