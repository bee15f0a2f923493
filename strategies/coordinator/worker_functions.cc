#include "strategies/coordinator/worker_functions.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "core/graph/serialization.h"
#include "core/runtime/trace.h"
#include "strategies/coordinator/replica_inputs.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kMaxValueBytes = size_t{1} << 40;  // of one value in a function

void require_small(const GraphFunction& function) {
  for (const auto& node : function.graph->nodes()) {
    // Of a table whose rows are made on first use, only rows ever come here.
    const auto* variable = dynamic_cast<const ServerVariable*>(node->resource());
    if (variable != nullptr && variable->is_lazy()) continue;
    for (const TensorSpec& spec : node->outputs())
      if (static_cast<size_t>(spec.shape.num_elements()) > kMaxValueBytes / dtype_size(spec.dtype))
        fail(Code::kResourceExhausted, "node \"", node->name(), "\" is ", spec, "; the limit is ",
             kMaxValueBytes, " bytes");
  }
}

// What each replica runs: the graph that takes its inputs. They have to communicate alike, so that
// none waits for another for ever.
std::vector<const GraphFunction*> graphs_on_replicas(const std::vector<GraphFunction>& graphs,
                                                     const std::vector<Signature>& signatures) {
  std::vector<const GraphFunction*> found;
  for (const Signature& signature : signatures) {
    const auto graph = std::ranges::find_if(graphs, [&](const GraphFunction& one) {
      return std::ranges::equal(one.graph->inputs(), signature, {},
                                [](const Value& input) { return input.spec(); });
    });
    if (graph == graphs.end())
      invalid("a function is sent without a graph for the inputs of replica ", found.size());
    if (common_effects(*graph->graph) != common_effects(*graphs[0].graph))
      invalid("a function is sent with graphs that do not communicate alike");
    found.push_back(&*graph);
  }
  return found;
}

std::set<const Resource*> used_by(const std::vector<GraphFunction>& graphs) {
  std::set<const Resource*> used;
  for (const GraphFunction& graph : graphs)
    for (const auto& node : graph.graph->nodes()) used.insert(node->resource());
  return used;
}

}  // namespace

std::map<std::string, std::shared_ptr<ServerVariable>> WorkerFunctions::attach_variables(
    const Define& define) {
  if (!define.server_variables.empty() && servers_ == nullptr)
    fail(Code::kFailedPrecondition, "a function uses variables of parameter servers, and ",
         attach_.worker, " has been told of none");
  std::map<std::string, std::shared_ptr<ServerVariable>> by_name;
  for (const std::string& description : define.server_variables) {
    const auto info = ServerVariableInfo::unpack(description, servers_->num_servers());
    // Functions may have different names for one.
    ServerVariableInfo nameless = info;
    nameless.name.clear();
    std::shared_ptr<ServerVariable>& variable = server_variables_[nameless.pack()];
    if (variable == nullptr)
      variable = std::make_shared<ServerVariable>(info, servers_, num_replicas());
    by_name.emplace(info.name, variable);
  }
  return by_name;
}

GraphFunction WorkerFunctions::import(const Define& define, const Tensor& graph) {
  if (!graph.defined() || graph.dtype() != DType::kUInt8 || graph.shape().rank() != 1)
    invalid("a function is sent as a tensor of bytes");
  const auto on_servers = attach_variables(define);
  const std::string_view bytes(static_cast<const char*>(graph.raw()), graph.bytes());
  GraphFunction function =
      import_function(bytes, [&](const std::string& name) -> std::shared_ptr<Resource> {
        if (const auto found = on_servers.find(name); found != on_servers.end())
          return found->second;
        return resources_.variable(name);
      });
  require_small(function);
  return function;
}

void WorkerFunctions::compile(const Define& define, CompiledFunction& compiled) {
  for (const Tensor& graph : define.graphs) compiled.graphs.push_back(import(define, graph));
  const auto of_replicas =
      graphs_on_replicas(compiled.graphs, signatures_on_replicas(define.signature, num_replicas()));
  compiled.counts = resources_.counts_in(used_by(compiled.graphs));
  if (!define.server_variables.empty()) {
    compiled.server_function = std::make_unique<ServerFunction>(of_replicas, servers_);
    return;
  }
  for (size_t r = 0; r < devices_.size(); ++r)
    compiled.plans.emplace_back(*of_replicas[r], PlanOptions{.device = devices_[r],
                                                             .local_replica = static_cast<int>(r),
                                                             .precision = define.precision,
                                                             .outside = false});
}

void WorkerFunctions::add(uint64_t function, CompiledFunction compiled) {
  auto& known = functions_[function];
  std::erase_if(known,
                [&](const CompiledFunction& c) { return c.signature == compiled.signature; });
  known.push_back(std::move(compiled));
}

CompiledFunction* WorkerFunctions::find(uint64_t function, const CallSignature& signature) {
  const auto family = functions_.find(function);
  if (family == functions_.end()) return nullptr;
  for (CompiledFunction& compiled : family->second)
    if (compiled.signature == signature) return &compiled;
  return nullptr;
}

}  // namespace cohort::coordinator
