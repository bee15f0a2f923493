#include "core/distribute/check_replicas.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>

#include "core/base/comma_separated.h"
#include "core/base/crc32c.h"
#include "core/distribute/packing.h"
#include "core/distribute/strategy.h"
#include "core/runtime/aggregation.h"
#include "core/runtime/trace.h"
#include "core/runtime/variable_memory.h"

namespace cohort {
namespace {

// Of the copies of one variable, in the order of replicas.
using Checks = std::vector<int64_t>;

struct Difference {
  std::string variable;
  Checks checks;
};

void require_copies(Strategy& strategy) {
  if (is_tracing_function())
    fail(Code::kFailedPrecondition,
         "check_replicas compares variables between steps, and a function is being traced: call it "
         "outside functions");
  if (strategy.remote_updates() != nullptr)
    fail(Code::kFailedPrecondition, "the replicas of ", strategy.name(),
         " cannot be compared: variables are on servers, and copies of them of different ages");
}

// Whether there are several copies of it, which are kept equal.
bool is_compared(const Variable& variable, const Strategy& strategy) {
  const size_t copies = variable.devices().size() * static_cast<size_t>(strategy.workers().size());
  return copies > 1 && is_written_together(variable.synchronization()) &&
         variable.num_sharing() < strategy.num_replicas_in_sync();
}

int64_t check_of(Variable& variable, size_t copy) {
  const Device device = variable.devices()[copy];
  Tensor memory = variable.storage(static_cast<int>(copy));
  if (!is_host(device)) {
    Tensor on_host(memory.dtype(), memory.shape());
    copy_between_devices(device, memory.raw(), Device{}, on_host.raw(), on_host.bytes());
    memory = on_host;
  }
  return int64_t{crc32c({static_cast<const char*>(memory.raw()), memory.bytes()})};
}

bool is_most(const Checks& checks, int64_t check) {
  return 2 * std::ranges::count(checks, check) > std::ssize(checks);
}

// What most copies have, or else the first.
int64_t usual_of(const Checks& checks) {
  const auto most =
      std::ranges::find_if(checks, [&](int64_t check) { return is_most(checks, check); });
  return most == checks.end() ? checks[0] : *most;
}

Error error_of(const std::vector<Difference>& different, const Workers& workers) {
  const auto& [variable, checks] = different[0];
  const size_t of_worker = checks.size() / static_cast<size_t>(workers.size());
  const auto worker_of = [&workers, of_worker](size_t replica) {
    return workers.size() == 1 ? std::string()
                               : workers.name(static_cast<int>(replica / of_worker));
  };
  const auto named = [&worker_of](size_t replica) {
    const std::string worker = worker_of(replica);
    return worker.empty() ? str("replica ", replica) : str("replica ", replica, " (", worker, ")");
  };
  const int64_t usual = usual_of(checks);
  std::vector<size_t> odd;
  for (size_t r = 0; r < checks.size(); ++r)
    if (checks[r] != usual) odd.push_back(r);
  constexpr size_t kMostNamed = 8;
  std::string message =
      str("variable \"", variable,
          "\" is not the same on all replicas: ", comma_separated(odd, named, kMostNamed),
          odd.size() == 1 ? " differs" : " differ", " from ",
          is_most(checks, usual) ? "most" : named(0));
  if (const size_t others = different.size() - 1; others > 0)
    message += str("; neither ", others == 1 ? "is " : "are ", others, " more of the variables");
  return Error(Code::kDataLoss, message, worker_of(odd[0]));
}

}  // namespace

void check_replicas(Strategy& strategy, const std::vector<std::shared_ptr<Variable>>& variables) {
  require_copies(strategy);
  std::vector<const Variable*> compared;
  Packer own;
  for (const auto& variable : variables) {
    if (variable == nullptr) invalid("check_replicas: one of the variables is null");
    if (!is_compared(*variable, strategy)) continue;
    compared.push_back(variable.get());
    for (size_t copy = 0; copy < variable->devices().size(); ++copy)
      own.add(check_of(*variable, copy));
  }
  Workers& workers = strategy.workers();
  const auto said = workers.exchange(
      str("the comparison of the copies of ", compared.size(), " variables"), own.bytes());
  std::vector<Unpacker> unpackers;
  for (const std::string& bytes : said) unpackers.emplace_back(bytes);
  std::vector<Difference> different;
  for (const Variable* variable : compared) {
    Checks checks;
    for (Unpacker& worker : unpackers)
      for (size_t copy = 0; copy < variable->devices().size(); ++copy)
        checks.push_back(worker.number());
    if (std::ranges::adjacent_find(checks, std::not_equal_to<>()) != checks.end())
      different.push_back({variable->name(), std::move(checks)});
  }
  // All of them have found the same.
  if (!different.empty()) workers.fail(error_of(different, workers));
}

}  // namespace cohort
