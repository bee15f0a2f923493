#include "strategies/coordinator/function_table.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <span>

#include "core/base/error.h"
#include "core/distribute/remote_updates.h"
#include "core/graph/op.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/serialization.h"
#include "strategies/coordinator/per_worker_variable.h"
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

Tensor bytes_of(const GraphFunction& function) {
  const std::string bytes = serialize_function(function);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  return Tensor::from(std::span<const uint8_t>(data, bytes.size()),
                      {static_cast<int64_t>(bytes.size())});
}

// A variable under another name.
class Alias final : public Resource {
 public:
  Alias(std::string name, TensorSpec spec) : name_(std::move(name)), spec_(std::move(spec)) {}
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return spec_; }

 private:
  const std::string name_;
  const TensorSpec spec_;
};

// The variables that functions use, and the names by which workers know them. On servers that is
// their own, or the key of their shards where several of them have one name.
class UsedVariables {
 public:
  // The graphs of the replicas of function `name`. kInvalidArgument for a variable that workers
  // cannot have.
  UsedVariables(const std::string& name, const std::vector<const GraphFunction*>& functions,
                WorkerCopies& copies) {
    for (const GraphFunction* function : functions)
      for (const auto& node : function->graph->nodes())
        if (const auto resource = node->shared_resource()) add(name, resource, copies);
    std::map<std::string, int> times;
    for (const auto& [resource, variable] : on_servers_) ++times[resource->name()];
    for (const auto& [resource, variable] : on_servers_) {
      rules_.add(variable);
      ServerVariableInfo info = variable->info();
      if (times[resource->name()] > 1) {
        info.name = info.key;
        rename(*resource, info.name);
      }
      server_variables_.insert(info.pack());
    }
  }

  // Those on parameter servers, packed.
  const std::set<std::string>& server_variables() const { return server_variables_; }
  const parameter_server::KnownRules& rules() const { return rules_; }
  // Whether there are such that each worker has apart.
  bool any_apart() const { return any_apart_; }
  // Of those, the resources that count what waits in sums.
  const std::set<uint64_t>& counts() const { return counts_; }

  // One of the functions, as bytes, with these names.
  Tensor serialised(const GraphFunction& function) const {
    if (aliases_.empty()) return bytes_of(function);
    Rewriter rewriter(function);
    for (const auto& node : function.graph->nodes()) {
      const auto alias = aliases_.find(node->resource());
      if (alias == aliases_.end()) {
        rewriter.copy(*node);
        continue;
      }
      Node& added = rewriter.graph().add_named(node->name(), node->op(), rewriter(node->inputs()),
                                               node->attributes(), alias->second);
      for (int i = 0; i < static_cast<int>(added.outputs().size()); ++i)
        rewriter.map(node->output(i), added.output(i));
    }
    return bytes_of(rewriter.finish());
  }

 private:
  void add(const std::string& function, const std::shared_ptr<Resource>& resource,
           WorkerCopies& copies) {
    if (const auto variable = std::dynamic_pointer_cast<ServerVariable>(resource))
      on_servers_.emplace(resource, variable);
    else if (const auto own = std::dynamic_pointer_cast<OwnVariable>(resource))
      add_own(own, copies);
    else if (const std::string* const name = per_worker_name(*resource))
      rename(*resource, *name);
    else
      invalid('"', function, "\" cannot be scheduled: it uses variable \"", resource->name(),
              "\", which is neither on parameter servers, as those made in the scope of a "
              "ParameterServerStrategy are, nor one of create_per_worker_variable");
  }
  void add_own(const std::shared_ptr<OwnVariable>& own, WorkerCopies& copies) {
    if (!own->is_apart()) {
      on_servers_.emplace(own, own->share());
      return;
    }
    any_apart_ = true;
    const WorkerCopies::Copies& of_workers = copies.of(own);
    if (own->kept() == KeptApart::kCount) counts_.insert(of_workers.handle->id());
    rename(*own, of_workers.name);
  }
  void rename(const Resource& resource, const std::string& name) {
    aliases_.try_emplace(&resource, std::make_shared<Alias>(name, resource.spec()));
  }

  std::map<std::shared_ptr<Resource>, std::shared_ptr<ServerVariable>> on_servers_;
  std::set<std::string> server_variables_;
  parameter_server::KnownRules rules_;
  std::map<const Resource*, std::shared_ptr<Resource>> aliases_;
  bool any_apart_ = false;
  std::set<uint64_t> counts_;
};

}  // namespace

std::shared_ptr<const Definition> FunctionFamily::find(const CallSignature& signature) const {
  const std::lock_guard lock(mutex_);
  const auto known = std::ranges::find_if(
      definitions_, [&](const auto& definition) { return definition->signature == signature; });
  return known == definitions_.end() ? nullptr : *known;
}

std::shared_ptr<const Definition> FunctionFamily::definition(const CallSignature& signature) {
  if (auto known = find(signature)) return known;
  const std::lock_guard tracing(*tracing_);
  if (auto known = find(signature)) return known;  // traced by another thread meanwhile
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<const GraphFunction*> functions = distinct(trace_(signature));
  auto definition = std::make_shared<Definition>(Definition{.function = id_,
                                                            .signature = signature,
                                                            .graphs = {},
                                                            .server_variables = {},
                                                            .precision = precision_});
  const UsedVariables variables(name_, functions, *copies_);
  for (const GraphFunction* function : functions)
    definition->graphs.push_back(variables.serialised(*function));
  definition->server_variables.assign(variables.server_variables().begin(),
                                      variables.server_variables().end());
  if (variables.any_apart()) keeps_on_workers_ = true;
  if (!variables.counts().empty()) sums_on_workers_ = true;
  trace_us_ += std::chrono::duration_cast<std::chrono::microseconds>(
                   std::chrono::steady_clock::now() - begin)
                   .count();
  const std::lock_guard lock(mutex_);
  counts_.insert(variables.counts().begin(), variables.counts().end());
  told_.add(variables.rules());
  return definitions_.emplace_back(std::move(definition));
}

bool FunctionFamily::is_count(uint64_t resource) const {
  const std::lock_guard lock(mutex_);
  return counts_.contains(resource);
}

bool FunctionFamily::is_outdated() const {
  const std::lock_guard lock(mutex_);
  return told_.are_outdated();
}

std::shared_ptr<FunctionFamily> FunctionTable::family(const void* identity, const std::string& name,
                                                      const FunctionFamily::Trace& trace,
                                                      Precision precision) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<FunctionFamily>& family = by_identity_[identity];
  if (family == nullptr || family->is_outdated()) {
    family = std::make_shared<FunctionFamily>(families_.size() + 1, name, trace, copies_, tracing_,
                                              precision);
    families_.push_back(family);
  }
  return family;
}

int64_t FunctionTable::trace_us() const {
  const std::lock_guard lock(mutex_);
  int64_t total = 0;
  for (const auto& family : families_) total += family->trace_us();
  return total;
}

}  // namespace cohort::coordinator
