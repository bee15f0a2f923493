#include "strategies/cluster/coordination/leader_question.h"

#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/base/error.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/endpoint.h"
#include "strategies/cluster/coordination/join_message.h"
#include "strategies/cluster/coordination/leader_link.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::coordination {
namespace {

using Time = std::chrono::steady_clock::time_point;

// The first message of a leader, or why there is none.
class LeaderAnswer : public LeaderLink::Listener {
 public:
  void received(const proto::FromLeader& message) override {
    const std::lock_guard lock(mutex_);
    if (!message_) message_ = message;
    changed_.notify_all();
  }
  void closed(const std::string& reason) override {
    const std::lock_guard lock(mutex_);
    why_none_ = reason;
    is_closed_ = true;
    changed_.notify_all();
  }

  std::optional<proto::FromLeader> wait(Time until) {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, until, [&] { return message_ || is_closed_; });
    return message_;
  }
  std::string why_none() const {
    const std::lock_guard lock(mutex_);
    return why_none_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<proto::FromLeader> message_;
  std::string why_none_ = "somebody listens there, but does not answer";
  bool is_closed_ = false;
};

std::string what_it_means(const proto::FromLeader& answer, const Roster& roster) {
  if (answer.has_refused()) throw read_refusal(roster, answer.refused());
  if (answer.has_busy()) throw Error(Code::kUnavailable, answer.busy().message());
  return "the leader would take this task";
}

}  // namespace

std::string ask_leader(const Roster& roster, const std::string& job_id, const Security& security,
                       Time deadline) {
  proto::FromMember question;
  write_join(roster, job_id, random_incarnation(), question.mutable_ask());
  std::string why_none;
  for (const net::InternetAddress& endpoint : resolve(*roster.leader())) {
    security.check(str("between tasks and their leader at ", roster.leader()->text()),
                   endpoint.is_loopback());
    LeaderAnswer answer;
    LeaderLink link(*roster.leader(), endpoint, {}, security, answer);
    link.send(question);
    if (const auto message = answer.wait(deadline)) return what_it_means(*message, roster);
    why_none = answer.why_none();
    if (why_none.starts_with(kJoinExpected))
      return "the leader, of an older version, does not tell whether it would take this task";
  }
  throw Error(Code::kUnavailable,
              str("asked ", security.encrypted() ? "by TLS" : "in plain text", ": ", why_none));
}

}  // namespace cohort::coordination
