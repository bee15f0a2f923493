#include <algorithm>

#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"

namespace cohort {
namespace {

bool is_convolution(const Node& node) {
  const std::string& op = node.op().name;
  return op == "Conv2D" || op == "Conv2DGradInput" || op == "Conv2DGradFilter";
}

bool is_attention(const Node& node) {
  return node.op().name == "Attention" || node.op().name == "AttentionGrad";
}

class Lowering {
 public:
  Lowering(const GraphFunction& function, DType dtype, LoweredFor device)
      : function_(function), dtype_(dtype), device_(device), rewrite_(function) {}

  GraphFunction run() {
    for (const auto& node : function_.graph->nodes()) {
      const bool is_float32 =
          !node->outputs().empty() && node->outputs()[0].dtype == DType::kFloat32;
      if (is_float32 && gives_16_bits(*node))
        lower_with_results(*node);
      else if (is_float32 && (is_convolution(*node) || node->op().name == "MatMul"))
        lower_operands(*node);
      else
        rewrite_.copy(*node);
    }
    return rewrite_.finish();
  }

 private:
  bool gives_16_bits(const Node& node) const {
    return device_ == LoweredFor::kGpu && (is_convolution(node) || is_attention(node));
  }

  void lower_operands(const Node& node) {
    std::vector<Value> inputs;
    for (const Value& input : rewrite_(node.inputs())) inputs.push_back(lowered(node, input));
    Attributes attributes = node.attributes();
    attributes.set("dtype", DType::kFloat32);
    rewrite_.map(
        output_of(node, 0),
        rewrite_.add(node, node.op().name, std::move(inputs), std::move(attributes)).output());
  }

  // Attention's log of the sums of exponentials, the sixth input or second output, stays float32.
  void lower_with_results(const Node& node) {
    constexpr size_t kLogSum = 5;
    std::vector<Value> inputs = rewrite_(node.inputs());
    for (size_t i = 0; i < std::min(inputs.size(), kLogSum); ++i)
      inputs[i] = lowered(node, inputs[i]);
    Attributes attributes = node.attributes();
    if (is_convolution(node)) attributes.set("dtype", dtype_);
    Node& low = rewrite_.add(node, node.op().name, std::move(inputs), std::move(attributes));
    for (size_t i = 0; i < node.outputs().size(); ++i) {
      const int index = static_cast<int>(i);
      rewrite_.map(output_of(node, index), widened(node, low.output(index)));
    }
  }

  static Value output_of(const Node& node, int index) {
    return Value(const_cast<Node*>(&node), index);
  }

  Value lowered(const Node& user, const Value& value) {
    auto [it, added] = lowered_.try_emplace(value);
    if (added) it->second = cast(user, value, dtype_);
    return it->second;
  }

  // As float32; who reads it in 16 bits anyway gets what was there before.
  Value widened(const Node& user, const Value& value) {
    if (value.dtype() == DType::kFloat32) return value;
    const Value wide = cast(user, value, DType::kFloat32);
    lowered_[wide] = value;
    return wide;
  }

  Value cast(const Node& user, const Value& value, DType dtype) {
    Attributes attributes;
    attributes.set("dtype", dtype);
    return rewrite_.add(user, "Cast", {value}, std::move(attributes)).output();
  }

  const GraphFunction& function_;
  const DType dtype_;
  const LoweredFor device_;
  Rewriter rewrite_;
  ValueMap<Value> lowered_;  // each value is cast once
};

}  // namespace

GraphFunction lower_precision(const GraphFunction& function, DType dtype, LoweredFor device) {
  return Lowering(function, dtype, device).run();
}

}  // namespace cohort
