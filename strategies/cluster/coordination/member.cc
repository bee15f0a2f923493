#include "strategies/cluster/coordination/member.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/base/notice.h"
#include "core/base/start_threads.h"
#include "core/base/time_limits.h"
#include "proto/coordination.pb.h"
#include "strategies/cluster/coordination/fault.h"
#include "strategies/cluster/coordination/join_message.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::coordination {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// For the last message of a membership.
constexpr seconds kFarewell(1);

void print_line(const std::string& line) { print_notice("cohort: " + line + "\n"); }

Error error_without_memory(const Roster& roster, int rank) {
  return {Code::kResourceExhausted,
          roster.described(rank) + " has no memory left to take part in the job",
          roster.name(rank)};
}

}  // namespace

Member::Member(Roster roster, std::string job_id, Security security,
               const MembershipOptions& options)
    : roster_(std::move(roster)),
      job_id_(std::move(job_id)),
      security_(std::move(security)),
      print_(options.notice ? options.notice : print_line),
      incarnation_(random_incarnation()),
      timing_{options.heartbeat, options.suspect_after, options.dead_after},
      clock_(std::max<milliseconds>(seconds(1), 2 * options.heartbeat)),
      no_memory_(error_without_memory(roster_, rank())) {
  join(options.join_timeout);
  pulse_ = start_thread([this] { pulse(); });
}

Member::~Member() {
  bool abandoned = false;
  {
    std::lock_guard lock(mutex_);
    abandoned = phase_ == Phase::kRunning;
    if (abandoned) phase_ = Phase::kLeft;
    stopping_ = true;
    changed_.notify_all();
  }
  pulse_.join();
  if (abandoned) {
    proto::FromMember message;
    message.mutable_quit();
    link_->send(message);
    link_->drain(kFarewell);
  }
  link_.reset();
  server_.reset();
}

std::string Member::task_name(int rank) const {
  if (rank < 0 || rank >= size()) invalid("rank ", rank, " is none of 0 to ", size() - 1);
  return roster_.name(rank);
}

int64_t Member::epoch() const {
  std::lock_guard lock(mutex_);
  return epoch_;
}

std::optional<Error> Member::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

FailureWatch Member::on_failure(std::function<void(const Error&)> callback) {
  FailureWatch watch(callbacks_, callbacks_->add(std::move(callback)));
  std::lock_guard lock(mutex_);
  wake_pulse_ = true;
  changed_.notify_all();
  return watch;
}

// ---- Calls to the leader ----

Member::Outcome Member::call(proto::Request& request, milliseconds timeout) {
  timeout = clamped(timeout);
  std::unique_lock lock(mutex_);
  check_usable();
  const uint64_t id = ++last_call_;
  request.set_id(id);
  request.set_timeout_ms(timeout.count());
  proto::FromMember message;
  message.mutable_request()->Swap(&request);
  const auto waiting = calls_.emplace(id, std::nullopt).first;
  link_->send(message);
  changed_.wait_for(lock, timeout + patience(), [&] { return waiting->second || failure_; });
  const std::optional<Outcome> outcome = std::move(waiting->second);
  calls_.erase(waiting);
  if (outcome && outcome->error) throw *outcome->error;
  if (outcome) return *outcome;
  check_usable();
  throw Error(Code::kDeadlineExceeded,
              str(leader(), " has not answered within ", in_words(timeout + patience())),
              task_name(0));
}

void Member::check_usable() const {
  if (failure_) throw *failure_;
  if (phase_ != Phase::kRunning) {
    cohort::fail(Code::kFailedPrecondition, roster_.name(rank()), " has left its job");
  }
}

void Member::set(std::string_view key, std::string_view value) {
  proto::Request request;
  // Beyond these the message would be too long for the leader to read, and refuse.
  request.mutable_set()->set_key(std::string(key.substr(0, kMaxKeyBytes + 1)));
  request.mutable_set()->set_value(std::string(value.substr(0, kMaxValueBytes + 1)));
  call(request);
}

std::string Member::get(std::string_view key, milliseconds timeout) {
  proto::Request request;
  request.set_get(std::string(key.substr(0, kMaxKeyBytes + 1)));
  return call(request, timeout).value;
}

std::optional<std::string> Member::find(std::string_view key) {
  proto::Request request;
  request.set_find(std::string(key.substr(0, kMaxKeyBytes + 1)));
  Outcome outcome = call(request);
  return outcome.number == 0 ? std::nullopt : std::optional(std::move(outcome.value));
}

int64_t Member::add(std::string_view key, int64_t amount) {
  proto::Request request;
  request.mutable_add()->set_key(std::string(key.substr(0, kMaxKeyBytes + 1)));
  request.mutable_add()->set_amount(amount);
  return call(request).number;
}

bool Member::compare_set(std::string_view key, std::optional<std::string_view> expected,
                         std::string_view value) {
  proto::Request request;
  proto::CompareSet& asked = *request.mutable_compare_set();
  // As in set(), of both values together.
  asked.set_key(std::string(key.substr(0, kMaxKeyBytes + 1)));
  if (expected) asked.set_expected(std::string(expected->substr(0, kMaxValueBytes + 1)));
  asked.set_value(std::string(value.substr(0, kMaxValueBytes + 1 - asked.expected().size())));
  return call(request).number != 0;
}

void Member::erase(std::string_view key) {
  proto::Request request;
  request.set_erase(std::string(key.substr(0, kMaxKeyBytes + 1)));
  call(request);
}

void Member::check() const {
  std::lock_guard lock(mutex_);
  check_usable();
}

void Member::barrier(const std::string& name, milliseconds timeout) {
  proto::Request request;
  request.set_barrier(name.substr(0, kMaxBarrierNameBytes + 1));
  call(request, timeout);
}

// ---- The end ----

void Member::report(const Error& error) {
  std::unique_lock lock(mutex_);
  if (failure_) return;
  check_usable();
  reported_ = true;
  proto::FromMember message;
  write_fault(error, message.mutable_report());
  link_->send(message);
  if (changed_.wait_for(lock, patience(), [&] { return failure_.has_value(); })) return;
  fail(error);
}

bool Member::leave(milliseconds timeout) {
  timeout = clamped(timeout);
  std::unique_lock lock(mutex_);
  check_usable();
  phase_ = Phase::kLeaving;
  proto::FromMember message;
  message.mutable_leave()->set_timeout_ms(timeout.count());
  link_->send(message);
  changed_.wait_for(lock, timeout + patience(), [&] { return phase_ == Phase::kLeft || failure_; });
  if (failure_) throw *failure_;
  if (phase_ != Phase::kLeft) {
    fail(Error(Code::kDeadlineExceeded, leader() + " does not answer", task_name(0)));
    throw *failure_;
  }
  if (!left_behind_.empty()) {
    notice(str("leaves the job; after ", in_words(timeout),
               " these are still in it: ", roster_.described(left_behind_, 32)));
  }
  const bool together = left_behind_.empty();
  lock.unlock();
  link_->drain(kFarewell);
  if (together) server_.reset();  // so that these tasks can join again, however long this one stays
  return together;
}

void Member::announce_stop() {
  std::lock_guard lock(mutex_);
  check_usable();
  proto::FromMember message;
  message.mutable_announce_stop();
  link_->send(message);
}

std::optional<int64_t> Member::stop_step(int64_t steps_done) {
  // Either this thread sees that the job stops, and waits, or the vote counts these steps: each
  // side writes before it reads.
  steps_done_.store(steps_done, std::memory_order_seq_cst);
  if (!attention_.load(std::memory_order_seq_cst)) return {};
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience(), [&] { return stop_step_ || failure_; });
  check_usable();
  if (!stop_step_) {
    throw Error(
        Code::kDeadlineExceeded,
        str("the tasks have not agreed on a step to stop at within ", in_words(patience())));
  }
  return stop_step_;
}

// ---- What the leader says ----

void Member::received(const proto::FromLeader& message) {
  std::lock_guard lock(mutex_);
  if (link_closed_) return;  // given up: nothing counts that still comes
  leader_heard_ = clock_.now();
  try {
    if (std::exchange(leader_suspected_, false)) notice(leader() + " is heard again");
    handle(message);
  } catch (const std::bad_alloc&) {
    fail_without_memory();
    throw;
  }
  changed_.notify_all();
}

void Member::handle(const proto::FromLeader& message) {
  switch (message.kind_case()) {
    case proto::FromLeader::kRefused:
      refusal_ = read_refusal(roster_, message.refused());
      return;
    case proto::FromLeader::kBusy:
      trouble_ = message.busy().message();
      trouble_told_ = true;
      return;
    case proto::FromLeader::kWaiting:
      accepted_ = true;
      missing_.clear();
      for (const int rank : message.waiting().missing()) {
        if (rank >= 0 && rank < size()) missing_.push_back(rank);
      }
      missing_count_ = message.waiting().missing_count();
      roll_call_ = message.waiting().roll_call();
      return;
    case proto::FromLeader::kWelcome:
      if (phase_ != Phase::kJoining) return;
      phase_ = Phase::kRunning;
      job_id_ = message.welcome().job_id();
      epoch_ = message.welcome().epoch();
      timing_ = {milliseconds(message.welcome().heartbeat_ms()),
                 milliseconds(message.welcome().suspect_ms()),
                 milliseconds(message.welcome().dead_ms())};
      return;
    case proto::FromLeader::kReply: {
      const auto call = calls_.find(message.reply().id());
      if (call == calls_.end()) return;
      call->second = Outcome{.value = message.reply().value(), .number = message.reply().number()};
      if (message.reply().has_error()) call->second->error = read_fault(message.reply().error());
      return;
    }
    case proto::FromLeader::kSuspicion: {
      const int rank = message.suspicion().rank();
      if (rank < 0 || rank >= size() || rank == this->rank()) return;
      const milliseconds silent(message.suspicion().silent_ms());
      return notice(message.suspicion().over()
                        ? roster_.described(rank) + " is heard again"
                        : str(roster_.described(rank), " has been silent for ", in_words(silent)));
    }
    case proto::FromLeader::kFailure: {
      epoch_ = message.failure().epoch();
      const Error error = read_fault(message.failure().fault());
      const bool expelled = error.peer() == roster_.name(rank()) && !reported_;
      return fail(expelled ? error.with_context("the job has given up this task") : error);
    }
    case proto::FromLeader::kStopRequested:
      stop_requested_ = wake_pulse_ = true;
      attention_.store(true, std::memory_order_seq_cst);
      return notice(str(roster_.name(std::clamp(message.stop_requested().rank(), 0, size() - 1)),
                        " has to end soon; all tasks will stop after the same step"));
    case proto::FromLeader::kStopAgreed:
      stop_step_ = message.stop_agreed().step();
      return notice(str("all tasks stop after ", *stop_step_, " steps"));
    case proto::FromLeader::kLeft:
      if (phase_ != Phase::kLeaving) return;
      phase_ = Phase::kLeft;
      left_behind_.assign(message.left().missing().begin(), message.left().missing().end());
      return;
    case proto::FromLeader::kLost:
      return notice("while tasks gather, " + read_fault(message.lost()).message());
    case proto::FromLeader::kHeartbeat:
    case proto::FromLeader::KIND_NOT_SET:
      return;
  }
}

void Member::closed(const std::string& reason) {
  std::lock_guard lock(mutex_);
  link_closed_ = true;
  try {
    if (phase_ == Phase::kJoining) {
      if (accepted_) lose_connection(str("its connection has closed (", reason, ")"));
      if (!trouble_told_) trouble_ = reason;
    } else if (phase_ == Phase::kRunning || phase_ == Phase::kLeaving) {
      fail(Error(Code::kUnavailable,
                 str(leader(), " is gone: its connection has closed, as when a process ends (",
                     reason, ")"),
                 roster_.name(0)));
    }
  } catch (const std::bad_alloc&) {
    fail_without_memory();
  }
  changed_.notify_all();
}

void Member::fail(Error error) {
  if (phase_ == Phase::kFailed || phase_ == Phase::kLeft) return;
  phase_ = Phase::kFailed;
  failure_ = std::move(error);
  wake_pulse_ = true;
  attention_.store(true, std::memory_order_seq_cst);
  changed_.notify_all();
}

}  // namespace cohort::coordination
