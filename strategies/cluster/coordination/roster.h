#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/cluster/address.h"
#include "strategies/cluster/cluster_resolver.h"
#include "strategies/cluster/cluster_spec.h"

namespace cohort::coordination {

// The tasks of a job by rank, and what they are called.
class Roster {
 public:
  // kFailedPrecondition for a job of several tasks whose leader's address is not known; else the
  // errors of ClusterResolver::world().
  explicit Roster(const ClusterResolver& resolver);
  // Of tasks of one process: only ranks are known, and there is no leader to be found.
  explicit Roster(const World& world) : world_(world) {}

  int rank() const { return world_.rank; }  // of this task
  int size() const { return world_.size; }
  // Where the leader listens; nothing for a task on its own.
  const std::optional<Address>& leader() const { return leader_; }
  // Empty where only ranks are known.
  const ClusterSpec& cluster() const { return spec_; }
  // Equal for tasks that were configured alike.
  uint64_t cluster_hash() const { return hash_; }

  // "chief:0", "worker:1"; where only ranks are known, "worker:RANK".
  std::string name(int rank) const;
  // With the address where it is known: "worker:1 (host:port)".
  std::string described(int rank) const;
  // "worker:1 (host:port), worker:2 (host:port)"; beyond `most`, their number instead.
  std::string described(const std::vector<int>& ranks, size_t most) const;

 private:
  World world_;
  std::optional<Address> leader_;
  ClusterSpec spec_;
  uint64_t hash_ = 0;
};

}  // namespace cohort::coordination
