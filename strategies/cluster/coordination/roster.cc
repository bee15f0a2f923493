#include "strategies/cluster/coordination/roster.h"

#include "core/base/comma_separated.h"
#include "core/base/error.h"
#include "core/base/host_name.h"

namespace cohort::coordination {
namespace {

// Why the leader is not known, where its resolver says.
std::string reason(const ClusterResolver& resolver) {
  for (const Fact& fact : resolver.facts())
    if (fact.name == "leader") return str(" (", fact.source, ")");
  return "";
}

// How the launchers that do not tell where rank 0 is pass that on.
std::string example(const ClusterResolver& resolver) {
  const std::string unknown = "HOST_OF_RANK_0";
  const std::string host = resolver.world().rank == 0 ? host_name(unknown) : unknown;
  const std::string& launcher = resolver.launcher();
  if (launcher == "PMI")
    return str(", as in mpiexec -genv MASTER_ADDR ", host, " -genv MASTER_PORT 29500");
  if (launcher == "Open MPI" || launcher == "PMIx")
    return str(", as in ", launcher == "PMIx" ? "prun" : "mpirun", " -x MASTER_ADDR=", host,
               " -x MASTER_PORT=29500");
  return "";
}

}  // namespace

Roster::Roster(const ClusterResolver& resolver)
    : world_(resolver.world()),
      leader_(resolver.leader()),
      spec_(resolver.cluster_spec()),
      hash_(spec_.empty() ? 0 : spec_.hash()) {
  if (world_.size > 1 && !leader_) {
    fail(Code::kFailedPrecondition, "this is rank ", world_.rank, " of ", world_.size, " by ",
         resolver.launcher(), ", which does not tell where rank 0 listens", reason(resolver),
         "; set MASTER_ADDR and MASTER_PORT to the host of rank 0 and a free port of it, the same "
         "for all tasks",
         example(resolver));
  }
}

std::string Roster::name(int rank) const {
  const int chiefs = spec_.has_task("chief", 0) ? 1 : 0;
  return rank < chiefs ? "chief:0" : str("worker:", rank - chiefs);
}

std::string Roster::described(int rank) const {
  const int chiefs = spec_.has_task("chief", 0) ? 1 : 0;
  const std::string job = rank < chiefs ? "chief" : "worker";
  const int index = rank < chiefs ? rank : rank - chiefs;
  if (spec_.has_task(job, index)) {
    return str(name(rank), " (", spec_.address(job, index).text(), ")");
  }
  if (rank == 0 && leader_) return str(name(rank), " (", leader_->text(), ")");
  return name(rank);
}

std::string Roster::described(const std::vector<int>& ranks, size_t most) const {
  const auto in_words = [this](int rank) { return described(rank); };
  return comma_separated(ranks, in_words, most);
}

}  // namespace cohort::coordination
