#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "strategies/parameter_server/clock_table.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/service.h"

namespace cohort::parameter_server::proto {
class Request;
}  // namespace cohort::parameter_server::proto

namespace cohort::parameter_server {

// A worker's clock: the reply waits until the worker may go on.
class ClockExchange final : public Exchange, public std::enable_shared_from_this<ClockExchange> {
 public:
  // Throws what the request is to be refused with.
  ClockExchange(Service& service, const proto::Request& request, std::shared_ptr<Start> start,
                std::shared_ptr<Caller> caller);

  void complete() override;
  std::optional<Message> next_message(const TakeMemory& take) override;

 private:
  // Why the worker may not go on, and those whom it waits for.
  struct HeldUp {
    std::string why, by;
  };

  // Tells the clocks; but not of an old copy of a request, which must not bring back who has left
  // since.
  void count() const;
  // Now, or once the worker may go on.
  void answer();
  // Says now and then for whom the worker has been waiting for long.
  void name_slow_later(ClockTable::Time deadline);
  void name_slow() const;
  bool may_go_on() const;
  HeldUp held_up() const;
  void proceed(bool ready);

  Service& service_;
  const int64_t completed_;
  const bool leaves_;
  const int64_t trainings_;
  const uint64_t sequence_;
  const std::chrono::milliseconds timeout_;
  const std::shared_ptr<Start> start_;
  const std::shared_ptr<Caller> caller_;
  const ClockTable::Time began_;
  std::atomic<bool> answered_ = false;
  std::optional<Message> reply_;
};

}  // namespace cohort::parameter_server
