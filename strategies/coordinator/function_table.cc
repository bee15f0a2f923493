#include "strategies/coordinator/function_table.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>

#include "core/graph/serialization.h"
#include "strategies/coordinator/worker_copies.h"
#include "strategies/parameter_server/own_variable.h"

namespace cohort::coordinator {

namespace {

// Each once, in the order of the replicas.
std::vector<const GraphFunction*> distinct(const std::vector<const GraphFunction*>& functions) {
  std::vector<const GraphFunction*> each;
  for (const GraphFunction* function : functions)
    if (std::ranges::find(each, function) == each.end()) each.push_back(function);
  return each;
}

Tensor serialised(const GraphFunction& function) {
  const std::string bytes = serialize_function(function);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return Tensor::from(std::span<const uint8_t>(data, bytes.size()),
                      {static_cast<int64_t>(bytes.size())});
}

// Adds the variables that functions use.
void add_variables(const std::vector<const GraphFunction*>& functions, WorkerCopies& copies,
                   Definition& definition) {
  std::set<std::shared_ptr<ServerVariable>> on_servers;
  std::set<uint64_t> on_workers;
  for (const GraphFunction* function : functions) {
    for (const auto& node : function->graph->nodes()) {
      const auto resource = node->shared_resource();
      if (const auto variable = std::dynamic_pointer_cast<ServerVariable>(resource))
        on_servers.insert(variable);
      if (const auto variable = std::dynamic_pointer_cast<OwnVariable>(resource)) {
        if (variable->is_apart())
          on_workers.insert(copies.of(variable));
        else
          on_servers.insert(variable->share());
      }
    }
  }
  for (const auto& variable : on_servers)
    definition.server_variables.push_back(variable->info().pack());
  definition.worker_variables.assign(on_workers.begin(), on_workers.end());
}

}  // namespace

std::shared_ptr<const Definition> FunctionFamily::definition(const CallSignature& signature) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      definitions_, [&](const auto& definition) { return definition->signature == signature; });
  if (known != definitions_.end()) return *known;
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<const GraphFunction*> functions = distinct(trace_(signature));
  auto definition = std::make_shared<Definition>(Definition{.function = id_,
                                                            .signature = signature,
                                                            .graphs = {},
                                                            .server_variables = {},
                                                            .worker_variables = {},
                                                            .precision = precision_});
  for (const GraphFunction* function : functions)
    definition->graphs.push_back(serialised(*function));
  add_variables(functions, *copies_, *definition);
  if (!definition->worker_variables.empty()) keeps_on_workers_ = true;
  trace_us_ += std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now() - begin)
                   .count();
  return definitions_.emplace_back(std::move(definition));
}

std::shared_ptr<FunctionFamily> FunctionTable::family(const void* identity, const std::string& name,
                                                      const FunctionFamily::Trace& trace,
                                                      Precision precision) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<FunctionFamily>& family = by_identity_[identity];
  if (family == nullptr) {
    family =
        std::make_shared<FunctionFamily>(families_.size() + 1, name, trace, copies_, precision);
    families_.push_back(family);
  }
  return family;
}

std::shared_ptr<FunctionFamily> FunctionTable::find(uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return id >= 1 && id <= families_.size() ? families_[id - 1] : nullptr;
}

int64_t FunctionTable::trace_us() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& family : families_) total += family->trace_us();
  return total;
}

}  // namespace cohort::coordinator
