#include "strategies/cluster/coordination/membership.h"

#include <utility>

#include "strategies/cluster/coordination/job_id.h"
#include "strategies/cluster/coordination/limits.h"
#include "strategies/cluster/coordination/member.h"
#include "strategies/cluster/coordination/random_ids.h"
#include "strategies/cluster/coordination/roster.h"
#include "strategies/cluster/coordination/solo_member.h"

namespace cohort {
namespace {

using namespace coordination;  // NOLINT: this is its front door
using std::chrono::milliseconds;

// Longer ones are a mistake of units.
constexpr milliseconds kLongestSilence = std::chrono::hours(24);

void check(const MembershipOptions& options) {
  if (options.heartbeat < milliseconds(1) || options.suspect_after / 2 < options.heartbeat ||
      options.dead_after <= options.suspect_after || options.dead_after > kLongestSilence) {
    invalid(
        "a heartbeat of ", in_words(options.heartbeat), ", suspect_after ",
        in_words(options.suspect_after), " and dead_after ", in_words(options.dead_after),
        " do not fit; two heartbeats, of 1 ms at least, must fit into suspect_after, which must "
        "be less than dead_after, which is a day at most");
  }
}

std::string job_id_of(const MembershipOptions& options, const Environment& environment) {
  if (options.job_id.empty()) return given_job_id(environment);
  return checked_job_id(options.job_id, "MembershipOptions::job_id");
}

}  // namespace

std::unique_ptr<Membership> Membership::join(const ClusterResolver& resolver,
                                             const MembershipOptions& options,
                                             const Environment& environment) {
  check(options);
  Roster roster(resolver);
  std::string id = job_id_of(options, environment);
  if (id.empty() && roster.rank() == 0) id = random_job_id();
  if (roster.size() == 1) return std::make_unique<SoloMember>(std::move(roster), std::move(id));
  Security security(options.tls, options.allow_plaintext, environment);
  return std::make_unique<Member>(std::move(roster), std::move(id), std::move(security), options);
}

}  // namespace cohort
