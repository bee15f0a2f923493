#include "strategies/parameter_server/update_function.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/graph/serialization.h"
#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"
#include "core/ops/state_ops.h"
#include "core/tensor/specs_of.h"

namespace cohort {
namespace {

using parameter_server::kValuePart;
using parameter_server::Parts;

const TensorSpec kScalar{DType::kFloat64, {}};
constexpr size_t kMaxUpdateBytes = 4 << 20;
constexpr size_t kMaxNodes = 4096;
// Of all values of an update together: so many times its variables, and some for small ones.
constexpr size_t kMaxCopies = 64, kMinWorkBytes = 1 << 20;
// Rows that are updated at once: enough to fill vectors, few enough to stay in a cache.
constexpr int64_t kRowBlockBytes = 64 << 10, kMaxRowBlock = 1024;

// A variable of the server, as the trace sees it.
class Part final : public Resource {
 public:
  Part(std::string name, TensorSpec spec) : name_(std::move(name)), spec_(std::move(spec)) {}
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return spec_; }

 private:
  std::string name_;
  TensorSpec spec_;
};

std::string trace(const optim::UpdateRule& rule, const TensorSpec& spec, double decay) {
  GraphFunction function;
  Graph& graph = *function.graph;
  const GraphScope scope(graph);
  const Value gradient = graph.add_input("gradient", spec);
  const Value learning_rate = graph.add_input("learning_rate", kScalar);
  const Value step = graph.add_input("step", kScalar);
  std::vector<Value> scalars;
  for (const Value& scalar : rule.scalars(learning_rate, step))
    scalars.push_back(ops::cast(scalar, spec.dtype));
  const auto value = std::make_shared<Part>(std::string(kValuePart), spec);
  std::vector<std::shared_ptr<Part>> slots;
  std::vector<Value> states;
  for (const optim::UpdateRule::Slot& slot : rule.slots()) {
    slots.push_back(std::make_shared<Part>(slot.name, spec));
    states.push_back(ops::read_variable(slots.back()));
  }
  Value before = ops::read_variable(value);
  if (decay != 0) before = before - before * ops::cast(learning_rate, spec.dtype) * decay;
  ops::assign(value, optim::apply_rule(rule, before, gradient, states, scalars));
  for (size_t i = 0; i < slots.size(); ++i) ops::assign(slots[i], states[i]);
  return serialize_function(function);
}

// A function whose variables are any of this spec.
GraphFunction import_update(std::string_view bytes, const TensorSpec& part) {
  return import_function(
      bytes, [&](const std::string& name) { return std::make_shared<Part>(name, part); });
}

void check(const GraphFunction& function, const Parts& parts) {
  const auto value = parts.find(kValuePart);
  COHORT_CHECK(value != parts.end());
  const std::vector<TensorSpec> wanted = {value->second->spec(), kScalar, kScalar};
  const std::vector<TensorSpec> given = specs_of(function.graph->inputs());
  if (given != wanted)
    invalid("an update takes a gradient ", wanted[0],
            " and the float64 scalars learning rate and step; this one has ", given.size(),
            " inputs, or others");
  if (!function.outputs.empty()) invalid("an update returns nothing");
  const auto& nodes = function.graph->nodes();
  if (nodes.size() > kMaxNodes)
    invalid("an update of ", nodes.size(), " nodes; the limit is ", kMaxNodes);
  size_t limit = kMinWorkBytes, total = 0;
  for (const auto& [name, part] : parts) limit += kMaxCopies * part->spec().bytes();
  for (const auto& node : nodes) {
    const std::string& op = node->op().name;
    const bool is_state = op == "ReadVariable" || op == "AssignVariable" || op == "Input";
    // What may fail would do so in the middle of an update.
    if ((node->op().stateful && !is_state) || node->op().may_fail)
      invalid("op ", op, " is not allowed in an update");
    for (const TensorSpec& spec : node->outputs()) {
      if (spec.bytes() / dtype_size(spec.dtype) != static_cast<size_t>(spec.shape.num_elements()) ||
          spec.bytes() > limit - std::min(limit, total))
        fail(Code::kResourceExhausted, "the values of an update take more than ", limit, " bytes");
      total += spec.bytes();
    }
  }
}

}  // namespace

ServerUpdate trace_update(const optim::UpdateRule& rule, const TensorSpec& shard, double decay) {
  ServerUpdate update{.slots = rule.slots(), .dense = trace(rule, shard, decay)};
  if (rule.row_wise() && decay == 0 && shard.shape.rank() > 0) {
    const size_t row = TensorSpec{shard.dtype, shard.shape.with_dim(0, 1)}.bytes();
    update.row_block = std::clamp<int64_t>(
        kRowBlockBytes / static_cast<int64_t>(std::max<size_t>(row, 1)), 1, kMaxRowBlock);
    update.by_rows = trace(rule, {shard.dtype, shard.shape.with_dim(0, update.row_block)}, decay);
  }
  return update;
}

namespace parameter_server {

std::unique_ptr<Plan> compile_update(std::string_view bytes, const Parts& parts, int threads) {
  if (bytes.size() > kMaxUpdateBytes)
    fail(Code::kResourceExhausted, "an update of ", bytes.size(), " bytes; the limit is ",
         kMaxUpdateBytes);
  const GraphFunction function =
      import_function(bytes, [&](const std::string& name) -> std::shared_ptr<Resource> {
        const auto found = parts.find(name);
        return found == parts.end() ? nullptr : found->second;
      });
  check(function, parts);
  return std::make_unique<Plan>(function, PlanOptions{.threads = threads});
}

bool only_adds(const ServerUpdate& update, const TensorSpec& shard) {
  const bool by_rows = update.dense.empty();
  const std::string& bytes = by_rows ? update.by_rows : update.dense;
  if (bytes.empty() || bytes.size() > kMaxUpdateBytes) return false;
  const GraphFunction function = import_update(
      bytes, by_rows ? TensorSpec{shard.dtype, shard.shape.with_dim(0, update.row_block)} : shard);
  const Node* write = nullptr;
  for (const auto& node : function.graph->nodes()) {
    if (node->op().name != "AssignVariable") continue;
    if (write != nullptr) return false;
    write = node.get();
  }
  if (write == nullptr || function.graph->inputs().empty()) return false;
  const Node& sum = write->inputs()[0].node();
  return sum.op().name == "Add" && sum.inputs()[1].is_same(function.graph->inputs()[0]) &&
         sum.inputs()[0].node().op().name == "ReadVariable" &&
         sum.inputs()[0].node().resource() == write->resource();
}

bool same_update(std::string_view a, std::string_view b, const TensorSpec& part) {
  if (a == b) return true;
  // Nothing larger has ever been compiled.
  if (a.empty() || b.empty() || std::max(a.size(), b.size()) > kMaxUpdateBytes) return false;
  return fingerprint(import_update(a, part)) == fingerprint(import_update(b, part));
}

}  // namespace parameter_server
}  // namespace cohort
