#include "strategies/cluster/coordination/solo_member.h"

#include <utility>

#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::coordination {

SoloMember::SoloMember(Roster roster, std::string job_id)
    : roster_(std::move(roster)), job_id_(std::move(job_id)), incarnation_(random_incarnation()) {}

std::string SoloMember::task_name(int rank) const {
  if (rank != 0) invalid("rank ", rank, " is not 0, the only one");
  return roster_.name(rank);
}

int64_t SoloMember::epoch() const {
  std::lock_guard lock(mutex_);
  return failure_ || left_ ? 2 : 1;
}

void SoloMember::barrier(const std::string&, std::chrono::milliseconds) { check_usable(); }

std::optional<Error> SoloMember::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

FailureWatch SoloMember::on_failure(std::function<void(const Error&)> callback) {
  FailureWatch watch(callbacks_, callbacks_->add(std::move(callback)));
  if (const auto error = failure()) callbacks_->call(*error);
  return watch;
}

void SoloMember::report(const Error& error) {
  {
    std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = Error(error.code(), str(roster_.name(0), " reports: ", error.message()),
                     error.peer().empty() ? roster_.name(0) : error.peer());
  }
  callbacks_->call(*failure());
}

std::optional<int64_t> SoloMember::stop_step(int64_t steps_done) {
  check_usable();
  return stopping_ ? std::optional(steps_done) : std::nullopt;
}

bool SoloMember::leave(std::chrono::milliseconds) {
  check_usable();
  std::lock_guard lock(mutex_);
  return left_ = true;
}

void SoloMember::check_usable() const {
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  if (left_) fail(Code::kFailedPrecondition, roster_.name(0), " has left its job");
}

}  // namespace cohort::coordination
