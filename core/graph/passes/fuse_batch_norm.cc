#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

// The Relu that alone uses a BatchNorm's result, or the ReluGrad that alone feeds a BatchNormGrad;
// null otherwise.
Node* relu_of(Node& node, const Users& users) {
  if (node.op().name == "BatchNorm") {
    Node* user = users.only_user(node.output(0));
    return user != nullptr && user->op().name == "Relu" ? user : nullptr;
  }
  if (node.op().name != "BatchNormGrad") return nullptr;
  const Value dy = node.inputs()[0];
  return dy.node().op().name == "ReluGrad" && users.only_user(dy) == &node ? &dy.node() : nullptr;
}

// A gradient takes what the ReluGrad took: dy in its place, y at the end.
std::vector<Value> fused_inputs(const Node& node, const Node& relu) {
  std::vector<Value> inputs = node.inputs();
  if (relu.op().name == "Relu") return inputs;
  inputs[0] = relu.inputs()[0];
  inputs.push_back(relu.inputs()[1]);
  return inputs;
}

Attributes with_relu(const Node& node) {
  Attributes attributes = node.attributes();
  attributes.set("activation", std::string("Relu"));
  return attributes;
}

void map_outputs(Rewriter& rewrite, Node& from, Node& to) {
  for (int i = 0; i < static_cast<int>(from.outputs().size()); ++i)
    rewrite.map(from.output(i), to.output(i));
}

}  // namespace

GraphFunction fuse_batch_norm_activation(const GraphFunction& function) {
  const Users users(function);
  Rewriter rewrite(function);
  std::set<const Node*> absorbed;
  for (const auto& node : function.graph->nodes())
    if (const Node* relu = relu_of(*node, users)) absorbed.insert(relu);
  for (const auto& node : function.graph->nodes()) {
    if (absorbed.count(node.get()) > 0) continue;
    Node* relu = relu_of(*node, users);
    if (relu == nullptr) {
      rewrite.copy(*node);
      continue;
    }
    Node& fused =
        rewrite.add(*node, node->op().name, rewrite(fused_inputs(*node, *relu)), with_relu(*node));
    map_outputs(rewrite, *node, fused);
    if (relu->op().name == "Relu") rewrite.map(relu->output(), fused.output(0));
  }
  return rewrite.finish();
}

}  // namespace cohort
