#include "core/distribute/strategy.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>

#include "core/base/random.h"
#include "core/distribute/replica_scope.h"
#include "core/distribute/step_profile.h"
#include "core/tensor/specs_of.h"

namespace cohort {
namespace {

// A seed of 0 is none of its own.
RunOptions with_seed(RunOptions options) {
  if (options.seed == 0) options.seed = global_seed();
  return options;
}

// The group that runs with these inputs. What makes no difference is left out, so that it makes no
// other trace either.
ReplicaGroup group_of(uint64_t strategy, const std::string& name, std::vector<Signature> signatures,
                      const std::vector<bool>& same_input) {
  ReplicaGroup group{strategy, static_cast<int>(signatures.size()), {}, {}, name};
  if (signatures.size() == 1) return group;
  if (std::find(same_input.begin(), same_input.end(), true) != same_input.end())
    group.same_input = same_input;
  group.signatures = std::move(signatures);
  const auto equals_first = [&](const Signature& s) { return s == group.signatures[0]; };
  if (std::all_of(group.signatures.begin(), group.signatures.end(), equals_first))
    group.signatures.clear();
  return group;
}

}  // namespace

struct Strategy::State {
  uint64_t id = next_id++;
  std::mutex running;
  const std::shared_ptr<const void> life = std::make_shared<char>();
  std::atomic<bool> was_entered = false;
  StepProfile profile{profiled_steps_of(std::getenv("COHORT_PROFILE"))};
  static std::atomic<uint64_t> next_id;
};
std::atomic<uint64_t> Strategy::State::next_id = 1;

namespace {

// Strategies by their numbers, for what is known of variables alone.
struct Living {
  std::mutex mutex;
  std::map<uint64_t, Strategy*> strategies;
};

Living& living() {
  static auto* const all = new Living;  // the default strategy ends after what is static here
  return *all;
}

}  // namespace

Strategy::Strategy() : state_(std::make_unique<State>()) {
  const std::lock_guard lock(living().mutex);
  living().strategies[state_->id] = this;
}

Strategy::~Strategy() {
  const std::lock_guard lock(living().mutex);
  living().strategies.erase(state_->id);
}

std::weak_ptr<const void> Strategy::lifetime() const { return state_->life; }
bool Strategy::was_entered() const { return state_->was_entered; }
void Strategy::note_entered() { state_->was_entered = true; }

Workers& Strategy::workers() const {
  static Workers alone;
  return alone;
}

bool Strategy::is_home_of(const Variable& variable) const {
  return variable.devices() == devices();
}

std::vector<Signature> Strategy::signatures_in_sync(const Function&,
                                                    const std::vector<Signature>& local,
                                                    const RunOptions&) {
  return local;
}

InputContext Strategy::input_context() const {
  const int local = static_cast<int>(devices().size());
  if (num_replicas_in_sync() % local != 0 || first_replica() % local != 0)
    invalid(name(), " has ", num_replicas_in_sync(), " replicas, of which ", local,
            " are here: all workers need equally many");
  return {num_replicas_in_sync() / local, first_replica() / local, num_replicas_in_sync()};
}

void Strategy::require_inputs(const Function& function,
                              const PerReplica<std::vector<Tensor>>& inputs) const {
  if (inputs.size() != devices().size())
    invalid(name(), " has ", devices().size(), " replicas, got inputs for ", inputs.size());
  for (size_t r = 0; r < inputs.size(); ++r) {
    if (inputs[r].size() != inputs[0].size())
      invalid("function \"", function.name(), "\": replica ", r, " has ", inputs[r].size(),
              " inputs, replica 0 has ", inputs[0].size());
    for (size_t i = 0; i < inputs[r].size(); ++i)
      if (!inputs[r][i].defined())
        invalid("function \"", function.name(), "\": input ", i, " of replica ", r,
                " has no value; it was never assigned");
  }
}

PerReplica<std::vector<Tensor>> Strategy::run(const Function& function,
                                              const PerReplica<std::vector<Tensor>>& inputs,
                                              const RunOptions& options) {
  require_cross_replica("run", "call the function's body itself");
  const RunOptions seeded = with_seed(options);
  const std::lock_guard one_at_a_time(state_->running);
  const StepProfile::Step profiled(state_->profile, workers());
  together(workers(), [&] { require_inputs(function, inputs); });
  std::vector<Signature> local;
  for (const auto& tensors : inputs) local.push_back(specs_of(tensors));
  // Other workers run the program with arguments of their own, which nobody compares.
  const auto same_input = workers().size() > 1 ? std::vector<bool>() : seeded.same_input;
  const ReplicaGroup group =
      group_of(state_->id, name(), signatures_in_sync(function, local, seeded), same_input);
  // Here rather than on the replicas' threads: once for all of them, under the caller's scopes.
  together(workers(), [&] {
    const ReplicaScope inside(*this);
    for (const Signature& signature : local) function.trace(signature, group);
  });
  return run_replicas(function, inputs, group, seeded);
}

void Strategy::require_cross_replica(std::string_view method, std::string_view instead) const {
  if (!has_current_graph()) return;
  const bool replica = get_replica_context() != nullptr;
  fail(Code::kFailedPrecondition, name(), "::", method, " cannot be called inside a ",
       replica ? "replica" : "function that is being traced", "; ", instead);
}

void Strategy::require_replica(std::string_view method) const {
  if (num_replicas_in_sync() == 1) return;
  const ReplicaContext* replica = get_replica_context();
  if (replica != nullptr && &replica->strategy() == this &&
      traced_group().num_replicas == num_replicas_in_sync())
    return;
  fail(Code::kFailedPrecondition, method, " needs the replicas of ", name(), ", and ",
       has_current_graph() ? "the function that is being traced is not one that they run: call it "
                             "in the body of the step, and hand the result on"
                           : "no step is being traced: call it in a function given to run");
}

std::vector<int64_t> split_rows(int64_t rows, int replicas) {
  if (rows < 0 || replicas < 1)
    invalid("cannot split ", rows, " rows over ", replicas, " replicas");
  return rebatch_sizes(rows, 1, replicas, 0);
}

PerReplica<std::vector<Tensor>> Strategy::split_batch(const std::vector<Tensor>& batch) const {
  if (batch.empty()) invalid("an empty batch cannot be split");
  PerReplica<std::vector<Tensor>> parts(devices().size());
  const auto first = static_cast<size_t>(first_replica());
  for (const Tensor& tensor : batch) {
    const auto rows = tensor.shape().rank() > 0 ? tensor.shape()[0] : -1;
    if (rows < 0 || rows != batch[0].shape()[0])
      invalid("the tensors of a batch need equal first extents, got ", batch[0].spec(), " and ",
              tensor.spec());
    const auto sizes = split_rows(rows, num_replicas_in_sync());
    int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + first_replica(), int64_t{0});
    for (size_t r = 0; r < parts.size(); begin += sizes[first + r++])
      parts[r].push_back(tensor.slice_rows(begin, begin + sizes[first + r]));
  }
  return parts;
}

PerReplica<Tensor> Strategy::distribute_values_from_function(
    const std::function<Tensor(const ValueContext&)>& function) {
  require_cross_replica("distribute_values_from_function", "use the replica's own values there");
  return together(workers(), [&] {
    if (!function) invalid("distribute_values_from_function: the function is empty");
    PerReplica<Tensor> values(devices().size());
    for (size_t r = 0; r < values.size(); ++r)
      values[r] = function({first_replica() + static_cast<int>(r), num_replicas_in_sync()});
    return values;
  });
}

std::shared_ptr<Variable> create_variable(VariableOptions options) {
  const std::string& scope = NameScope::current();
  if (!scope.empty()) options.name = str(scope, "/", options.name);
  Strategy& strategy = current_strategy();
  auto variable = strategy.create_variable(options);
  // Those made outside any scope are plain ones, for whoever has one replica.
  if (has_strategy()) variable->set_strategy(strategy.state_->id, strategy.name());
  return variable;
}

Workers& workers_of(const std::vector<std::shared_ptr<Variable>>& variables) {
  const auto made_in_scope = [](const auto& variable) { return variable->strategy() != 0; };
  const auto first = std::ranges::find_if(variables, made_in_scope);
  if (first == variables.end()) return current_strategy().workers();
  const Strategy* strategy = &current_strategy();
  {
    const std::lock_guard lock(living().mutex);
    const auto found = living().strategies.find((*first)->strategy());
    if (found != living().strategies.end()) strategy = found->second;
  }
  return strategy->workers();
}

}  // namespace cohort
