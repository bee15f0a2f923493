#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

bool is_contraction(const Node& node) {
  const std::string& op = node.op().name;
  return op == "MatMul" || op == "Conv2D" || op == "Conv2DGradInput" || op == "Conv2DGradFilter";
}

}  // namespace

GraphFunction lower_precision(const GraphFunction& function, DType dtype) {
  Rewriter rewrite(function);
  std::map<Value, Value> lowered;  // each value is cast once
  const auto lower = [&](const Node& user, const Value& value) {
    auto [it, added] = lowered.try_emplace(value);
    if (added) {
      Attributes attributes;
      attributes.set("dtype", dtype);
      it->second = rewrite.add(user, "Cast", {value}, std::move(attributes)).output();
    }
    return it->second;
  };
  for (const auto& node : function.graph->nodes()) {
    if (!is_contraction(*node) || node->outputs()[0].dtype != DType::kFloat32) {
      rewrite.copy(*node);
      continue;
    }
    std::vector<Value> inputs;
    for (const Value& input : rewrite(node->inputs())) inputs.push_back(lower(*node, input));
    Attributes attributes = node->attributes();
    attributes.set("dtype", DType::kFloat32);
    rewrite.map(
        node->output(),
        rewrite.add(*node, node->op().name, std::move(inputs), std::move(attributes)).output());
  }
  return rewrite.finish();
}

}  // namespace cohort
