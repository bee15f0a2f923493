#include "strategies/parameter_server/invitations.h"

#include "core/base/error.h"
#include "strategies/cluster/coordination/random_ids.h"

namespace cohort::parameter_server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInvitationTime(10'000);
constexpr size_t kMaxInvitations = 4096;

}  // namespace

std::string Invitations::invite(const std::shared_ptr<Start>& caller) {
  const std::string word = coordination::random_job_id();
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(invited_, [&](const auto& entry) { return entry.second.until < now; });
  if (invited_.size() >= kMaxInvitations) return "";
  invited_.emplace(word, Invited{.caller = caller, .until = now + kInvitationTime});
  return word;
}

std::shared_ptr<Start> Invitations::redeem(const std::string& word) {
  const std::lock_guard lock(mutex_);
  const auto found = invited_.find(word);
  if (found == invited_.end() || found->second.until < Clock::now())
    fail(Code::kPermissionDenied, "the caller's word is not one that it has been given");
  const std::shared_ptr<Start> caller = found->second.caller;
  invited_.erase(found);
  return caller;
}

}  // namespace cohort::parameter_server
