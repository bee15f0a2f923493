#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "strategies/cluster/cluster_spec.h"
#include "strategies/cluster/coordination/membership.h"
#include "strategies/cluster/launcher/reserved_port.h"
#include "strategies/cluster/literal_resolver.h"
#include "tests/strategies/cluster/testing.h"
#include "tests/testing/error_of.h"
#include "tests/testing/eventually.h"
#include "tests/testing/lines.h"

namespace cohort::testing {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Longer than anything may take on a busy machine.
inline constexpr seconds kPlenty(60);

// The workers of a job on this host, with ports that nobody else gets.
class LocalJob {
 public:
  explicit LocalJob(int size) : ports_(size) {
    std::vector<std::string> addresses;
    for (const auto& port : ports_) addresses.push_back(port.address());
    spec_ = ClusterSpec({{"worker", addresses}});
  }
  int size() const { return static_cast<int>(ports_.size()); }
  int port(int rank) const { return ports_[rank].port(); }
  std::string address(int rank) const { return ports_[rank].address(); }
  const ClusterSpec& spec() const { return spec_; }
  LiteralResolver resolver(int rank) const {
    return LiteralResolver(spec_, {.task_type = "worker", .task_id = rank});
  }

 private:
  std::vector<launcher::ReservedPort> ports_;
  ClusterSpec spec_;
};

inline std::unique_ptr<Membership> join(const ClusterResolver& resolver,
                                        const MembershipOptions& options = {},
                                        const Variables& variables = {}) {
  return Membership::join(resolver, options, environment(variables));
}

// Runs body(0) to body(size - 1), each on a thread of its own, and returns what each has thrown, ""
// if nothing.
inline std::vector<std::string> on_threads(int size, const std::function<void(int)>& body) {
  std::vector<std::string> errors(size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The memberships of a whole job.
using Members = std::vector<std::unique_ptr<Membership>>;
inline Members join_all(const LocalJob& job, const MembershipOptions& options = {}) {
  Members members(job.size());
  const auto errors =
      on_threads(job.size(), [&](int rank) { members[rank] = join(job.resolver(rank), options); });
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
  return members;
}

}  // namespace cohort::testing
