// Of a shard, what synchronous training does: gradients are counted until an update is complete.
#include <chrono>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {

// One gradient of a synchronous update.
PushResult Shard::count(IncomingPush& push, PushResult result) {
  Marks mark = {{push.task, push.mark}};
  if (push.computed_at != ShardVersion{environment_.epoch, version_}) {
    mark_only(std::move(mark));
    result.outcome = PushOutcome::kLate;
    return result;
  }
  if (round_.has(push.task)) {
    set_marks(std::move(mark));
    result.outcome = PushOutcome::kRepeated;
    result.version = version_ + 1;
    return result;
  }
  if (!round_.fits(push))
    invalid("shard \"", spec_.name, "\" was given dense and sparse gradients for one update");
  const auto last = marks_.find(push.task);
  round_.enter(push, last == marks_.end() ? std::nullopt : std::optional(last->second));
  const bool has_others = round_.size() > 1;
  const auto now = std::chrono::steady_clock::now();
  const auto alone = now - round_.latest();
  try {
    if (round_is_complete()) {
      finish_round(&push);
      result.outcome = PushOutcome::kApplied;
    } else {
      round_.add(push, now);
      result.outcome = PushOutcome::kCounted;
    }
  } catch (...) {
    round_.leave(push);
    throw;
  }
  if (result.outcome == PushOutcome::kCounted) {
    set_marks(std::move(mark));
    return result;
  }
  if (has_others) result.awaited_share = last_contributor_.count(push.task, alone);
  result.version = version_;
  return result;
}

// With the first gradients that are enough and weigh something, or with those of all who are left.
bool Shard::round_is_complete() const {
  if (round_.size() == 0) return false;
  return round_.weighing() >= environment_.consistency.gradients_per_update() ||
         environment_.awaited([this](const std::string& task) { return round_.has(task); }) == 0;
}

void Shard::finish_round(IncomingPush* last) {
  const AppliedGradient sum =
      round_.sum(last, updates_ + 1, environment_.consistency.gradients_per_update());
  Marks marks;
  for (const auto& [task, before] : round_.tasks())
    marks[task] = last != nullptr && last->task == task ? last->mark : marks_.at(task);
  or_forget(make_rows(sum), [&] { record(marks, sum); });
  apply(sum);
  set_marks(std::move(marks));
  round_ = {};
}

void Shard::drop_round() {
  dropped_ += static_cast<uint64_t>(round_.size());
  round_ = {};
}

uint64_t Shard::dropped() const {
  const std::shared_lock lock(mutex_);
  return dropped_;
}

bool Shard::settle() {
  {
    const std::shared_lock lock(mutex_);
    if (!round_is_complete()) return false;
  }
  const std::lock_guard lock(mutex_);
  if (!round_is_complete()) return false;
  finish_round(nullptr);
  return true;
}

std::set<std::string> Shard::contributors() const {
  const std::shared_lock lock(mutex_);
  std::set<std::string> tasks;
  for (const auto& [task, mark] : round_.tasks()) tasks.insert(task);
  return tasks;
}

std::optional<UpdateRound::Time> Shard::round_began() const {
  const std::shared_lock lock(mutex_);
  return round_.began();
}

}  // namespace cohort::parameter_server
