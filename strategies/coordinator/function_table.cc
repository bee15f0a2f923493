#include "strategies/coordinator/function_table.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <span>

#include "core/graph/serialization.h"
#include "strategies/parameter_server/own_variable.h"

namespace cohort::coordinator {

namespace {

std::vector<std::string> server_variables_of(const GraphFunction& function) {
  std::set<ServerVariable*> variables;
  for (const auto& node : function.graph->nodes()) {
    if (auto* variable = dynamic_cast<ServerVariable*>(node->resource()))
      variables.insert(variable);
    if (auto* variable = dynamic_cast<OwnVariable*>(node->resource()))
      variables.insert(variable->share().get());
  }
  std::vector<std::string> packed;
  for (ServerVariable* variable : variables) packed.push_back(variable->info().pack());
  return packed;
}

}  // namespace

std::shared_ptr<const Definition> FunctionFamily::definition(const CallSignature& signature) {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      definitions_, [&](const auto& definition) { return definition->signature == signature; });
  if (known != definitions_.end()) return *known;
  const auto begin = std::chrono::steady_clock::now();
  const GraphFunction& function = trace_(signature);
  const std::string bytes = serialize_function(function);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  auto definition = std::make_shared<const Definition>(
      Definition{id_, signature,
                 Tensor::from(std::span<const uint8_t>(data, bytes.size()),
                              {static_cast<int64_t>(bytes.size())}),
                 server_variables_of(function)});
  trace_us_ += std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now() - begin)
                   .count();
  return definitions_.emplace_back(std::move(definition));
}

std::shared_ptr<FunctionFamily> FunctionTable::family(const void* identity, const std::string& name,
                                                      const FunctionFamily::Trace& trace) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<FunctionFamily>& family = by_identity_[identity];
  if (family == nullptr) {
    family = std::make_shared<FunctionFamily>(families_.size() + 1, name, trace);
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
