#include "strategies/parameter_server/clock_exchange.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "proto/parameter_server.pb.h"
#include "strategies/parameter_server/wire.h"

namespace cohort::parameter_server {
namespace {

ClockTable::Time now() { return std::chrono::steady_clock::now(); }

}  // namespace

ClockExchange::ClockExchange(Service& service, const proto::Request& request,
                             std::shared_ptr<Start> start, std::shared_ptr<Caller> caller)
    : service_(service),
      completed_(request.clock().completed()),
      leaves_(request.clock().leave()),
      trainings_(request.clock().trainings()),
      sequence_(request.clock().sequence()),
      timeout_(timeout_of(request.timeout_ms())),
      start_(std::move(start)),
      caller_(std::move(caller)),
      began_(now()) {
  if (completed_ < 0) invalid("a worker cannot have completed ", completed_, " steps");
  if (trainings_ < 0) invalid("a worker cannot have ended ", trainings_, " trainings");
}

void ClockExchange::complete() {
  // A later start may have come meanwhile, which has its own clock.
  refuse_if_retired(*start_);
  count();
  answer();
}

std::optional<Message> ClockExchange::next_message(const TakeMemory&) {
  return std::exchange(reply_, std::nullopt);
}

void ClockExchange::count() const {
  const bool is_new = service_.with_clocks([&](ClockTable& clocks) {
    const uint64_t last = std::exchange(start_->clocked, std::max(start_->clocked, sequence_));
    if (sequence_ != 0 && sequence_ <= last) return false;
    if (leaves_)
      clocks.leave(start_->task, trainings_);
    else
      clocks.complete(start_->task, completed_, now());
    return true;
  });
  if (is_new && leaves_)
    service_.go_on_without(start_->task);
  else if (is_new)
    service_.waiting_room().look();
}

void ClockExchange::answer() {
  if (may_go_on()) return proceed(true);
  const auto deadline = now() + timeout_;
  name_slow_later(deadline);
  service_.waiting_room().wait(
      {.is_ready =
           [self = shared_from_this()] { return self->caller_->has_gone() || self->may_go_on(); },
       .deadline = deadline,
       .proceed = [self = shared_from_this()](bool ready) { self->proceed(ready); }});
}

void ClockExchange::name_slow_later(ClockTable::Time deadline) {
  const auto limit = now() + service_.quiet_wait();
  if (limit >= deadline) return;
  const auto say = [self = shared_from_this(), deadline] {
    self->name_slow();
    self->name_slow_later(deadline);
  };
  service_.waiting_room().wait(
      {.is_ready = [self = shared_from_this()] { return self->answered_.load(); },
       .deadline = limit,
       .proceed =
           [self = shared_from_this(), say](bool answered) {
             if (!answered) self->service_.pool().run(say);
           }});
}

void ClockExchange::name_slow() const {
  const HeldUp held = held_up();
  if (answered_ || held.by.empty() || !service_.is_slow_news(held.by)) return;
  const auto waited = std::chrono::floor<std::chrono::milliseconds>(now() - began_);
  service_.options().notice(str("parameter server: ", held.why, "; ", start_->task,
                                " has been waiting for ", waited.count(), " ms"));
}

bool ClockExchange::may_go_on() const {
  return service_.with_clocks(
      [&](ClockTable& clocks) { return clocks.may_start(start_->task, now()); });
}

ClockExchange::HeldUp ClockExchange::held_up() const {
  std::string slow;
  int64_t steps = completed_;
  const auto slowest = service_.with_clocks([&](ClockTable& clocks) {
    slow = clocks.holding_up(now());
    steps = clocks.completed(start_->task).value_or(completed_);
    return clocks.slowest(now());
  });
  return {
      .why = str(start_->task, " has completed ", steps, " steps and may not run further ",
                 "ahead (max_staleness=", service_.options().consistency.max_staleness.value_or(0),
                 "): the slowest is ", slow, " at ", slowest.value_or(0)),
      .by = slow};
}

void ClockExchange::proceed(bool ready) {
  answered_ = true;
  if (!ready) {
    const HeldUp held = held_up();
    return caller_->refuse(Error(Code::kDeadlineExceeded, held.why, only_task(held.by)));
  }
  const auto slowest =
      service_.with_clocks([](ClockTable& clocks) { return clocks.slowest(now()); });
  proto::Reply reply;
  reply.mutable_clocked()->set_slowest(slowest.value_or(completed_));
  reply_ = Message{.header = reply.SerializeAsString()};
  caller_->reply();
}

}  // namespace cohort::parameter_server
