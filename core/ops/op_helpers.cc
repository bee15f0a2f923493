#include "core/ops/op_helpers.h"

#include <algorithm>

#include "core/ops/array_ops.h"
#include "core/ops/math_ops.h"

namespace cohort::ops {

Node& apply_node(std::string_view op, Values inputs, Attributes attributes) {
  Graph& graph = inputs.empty() ? current_graph() : inputs.front().graph();
  return graph.add(op, std::move(inputs), std::move(attributes));
}

Value apply(std::string_view op, Values inputs, Attributes attributes) {
  return apply_node(op, std::move(inputs), std::move(attributes)).output();
}

std::string in_scope(std::string_view name) {
  const std::string& scope = NameScope::current();
  return scope.empty() ? std::string(name) : str(scope, "/", name);
}

int axis_of(std::string_view name, const Value& x, int64_t axis) {
  return prepare(name, [&] { return x.shape().normalize_axis(axis); });
}

std::vector<int64_t> axes_of(std::string_view name, const Value& x,
                             const std::vector<int64_t>& axes) {
  std::vector<int64_t> normalised;
  for (int64_t axis : axes) normalised.push_back(axis_of(name, x, axis));
  if (axes.empty())
    for (int i = 0; i < x.shape().rank(); ++i) normalised.push_back(i);
  std::sort(normalised.begin(), normalised.end());
  const auto twice = std::adjacent_find(normalised.begin(), normalised.end());
  if (twice != normalised.end())
    invalid(in_scope(name), ": axis ", *twice, " of ", x.shape(), " is given twice");
  return normalised;
}

Value output_of(const Node& node, int index) {
  return node.graph().nodes()[node.id()]->output(index);
}

Values outputs_of(const Node& node) {
  Values outputs;
  for (size_t i = 0; i < node.outputs().size(); ++i)
    outputs.push_back(output_of(node, static_cast<int>(i)));
  return outputs;
}

Value scalar_like(const Value& x, double value) {
  GraphScope scope(x.graph());
  return constant(value, x.dtype());
}

Value sum_to_shape(const Value& g, const Shape& shape) {
  if (g.shape() == shape) return g;
  std::vector<int64_t> axes;
  const int added = g.shape().rank() - shape.rank();
  for (int i = 0; i < g.shape().rank(); ++i)
    if (g.shape()[i] != (i < added ? 1 : shape[i - added])) axes.push_back(i);
  return reshape(axes.empty() ? g : reduce_sum(g, axes), shape.to_vector());
}

}  // namespace cohort::ops
