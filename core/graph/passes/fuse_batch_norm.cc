#include <set>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"

namespace cohort {
namespace {

// The ReluGrad that only feeds `node`'s first input; null otherwise.
Node* relu_grad_before(const Node& node, const Users& users) {
  const Value dy = node.inputs()[0];
  if (dy.node().op().name != "ReluGrad" || users.only_user(dy) != &node) return nullptr;
  return &dy.node();
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
  std::set<int> absorbed;
  for (const auto& node : function.graph->nodes()) {
    if (node->op().name == "ReluGrad") {
      Node* user = users.only_user(node->output());
      if (user != nullptr && user->op().name == "BatchNormGrad" &&
          user->inputs()[0] == node->output())
        continue;
    }
    if (absorbed.count(node->id()) > 0) continue;
    if (node->op().name == "BatchNorm") {
      Node* relu = users.only_user(node->output(0));
      if (relu != nullptr && relu->op().name == "Relu") {
        Node& fused = rewrite.add(*node, "BatchNorm", rewrite(node->inputs()), with_relu(*node));
        map_outputs(rewrite, *node, fused);
        rewrite.map(relu->output(), fused.output(0));
        absorbed.insert(relu->id());
        continue;
      }
    }
    if (node->op().name == "BatchNormGrad") {
      if (Node* relu_grad = relu_grad_before(*node, users)) {
        std::vector<Value> inputs =
            rewrite(std::vector<Value>(node->inputs().begin() + 1, node->inputs().end()));
        inputs.insert(inputs.begin(), rewrite(relu_grad->inputs()[0]));
        inputs.push_back(rewrite(relu_grad->inputs()[1]));
        map_outputs(rewrite, *node,
                    rewrite.add(*node, "BatchNormGrad", std::move(inputs), with_relu(*node)));
        continue;
      }
    }
    rewrite.copy(*node);
  }
  return rewrite.finish();
}

}  // namespace cohort
