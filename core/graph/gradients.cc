#include "core/graph/gradients.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/graph/branch.h"
#include "core/graph/indices.h"
#include "core/graph/op.h"
#include "core/graph/value_map.h"

namespace cohort {
namespace {

Value reshape(const Value& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return x.graph().add("Reshape", {x}, {{"shape", shape.to_vector()}}).output();
}

Value concat_rows(const std::vector<Value>& values) {
  if (values.size() == 1) return values[0];
  return values[0].graph().add("Concat", values, {{"axis", int64_t{0}}}).output();
}

// The sum in the order given, so that it is the same on every run and replica.
Value sum(const std::vector<Value>& values) {
  Value total = values[0];
  for (size_t i = 1; i < values.size(); ++i)
    total = total.graph().add("Add", {total, values[i]}).output();
  return total;
}

// Slices of x's gradient as one set of rows.
Gradient join(const std::vector<Gradient>& slices) {
  const bool same_dtype = std::all_of(slices.begin(), slices.end(), [&](const Gradient& s) {
    return s.indices.dtype() == slices[0].indices.dtype();
  });
  std::vector<Value> values, indices;
  for (const Gradient& s : slices) {
    values.push_back(s.values);
    indices.push_back(same_dtype ? s.indices : as_int64(s.indices));
  }
  return {concat_rows(values), concat_rows(indices), slices[0].rows};
}

// Whether its results depend on what other replicas have given to it.
bool mixes_replicas(const Node& node) {
  const std::string& op = node.op().name;
  return op == "AllReduce" || op == "AllGather" || op == "ReduceScatter";
}

// Whether `outer` is the branch `inner` or one that it lies in (BranchScope).
bool contains(const Value& outer, Value inner) {
  while (inner.defined() && !inner.is_same(outer) && inner.node().op().name == "LogicalAnd")
    inner = inner.node().inputs()[0];
  return !outer.defined() || inner.is_same(outer);
}

void check_gradients(const std::vector<Value>& ys, const std::vector<Value>& grad_ys) {
  if (ys.empty()) invalid("there is nothing to differentiate");
  if (ys.size() != grad_ys.size())
    invalid(ys.size(), " values to differentiate, but ", grad_ys.size(), " gradients of them");
  for (size_t i = 0; i < ys.size(); ++i) {
    if (!is_floating(ys[i].dtype()))
      invalid("value ", i, " to differentiate must be floating, is ", ys[i].spec());
    if (grad_ys[i].spec() != ys[i].spec())
      invalid("the gradient of value ", i, " must be ", ys[i].spec(), ", as the value is, is ",
              grad_ys[i].spec());
  }
}

// The reverse sweep over one graph.
class Backward {
 public:
  Backward(const std::vector<Value>& ys, const std::vector<Value>& xs,
           const std::vector<Value>& grad_ys)
      : graph_(ys[0].graph()), xs_(xs.begin(), xs.end()) {
    int last = 0;
    for (size_t i = 0; i < ys.size(); ++i) {
      last = std::max(last, ys[i].node().id());
      dense_[ys[i]].push_back(grad_ys[i]);
    }
    mark_dependents(last);
    mark_shared(last);
    find_first_users(last);
    for (int id = last; id >= 0; --id) {
      Node& node = *graph_.nodes()[id];
      const NameScope scope(str("gradient/", node.name()));
      const BranchScope branch(node);
      visit(node);
      for (const Value& x : completed_by_[id]) complete(x);
    }
  }

  Gradient of(const Value& x) const {
    const auto it = complete_.find(x);
    return it == complete_.end() ? Gradient() : it->second;
  }

 private:
  // Marks the nodes up to `last` that have an x above them: only they pass gradients on.
  void mark_dependents(int last) {
    dependent_.resize(last + 1);
    for (int id = 0; id <= last; ++id) {
      const auto& inputs = graph_.nodes()[id]->inputs();
      dependent_[id] = std::any_of(inputs.begin(), inputs.end(),
                                   [&](const Value& v) { return wants_gradient(v); });
    }
  }

  // Marks what collectives in branches are given: it counts wherever their results do.
  void mark_shared(int last) {
    shared_.resize(last + 1);
    for (int id = last; id >= 0; --id) {
      const Node& node = *graph_.nodes()[id];
      if (mixes_replicas(node)) shared_[id] = true;
      if (!shared_[id]) continue;
      for (const Value& input : node.inputs())
        if (contains(input.node().branch(), node.branch())) shared_[input.node().id()] = true;
    }
  }

  // What has to hold for a node to count on this replica.
  Value condition_of(const Node& node) const {
    return shared_[node.id()] ? Value() : node.branch();
  }

  // A branch that does not count has no part in the gradient of what lies outside it, even where
  // its own gradient is no number: what has to hold for `node` to hand one on to `producer`.
  Value condition_between(const Node& node, const Node& producer) const {
    const Value condition = condition_of(node);
    return condition.is_same(condition_of(producer)) ? Value() : condition;
  }

  bool wants_gradient(const Value& v) const {
    return is_floating(v.dtype()) && (xs_.count(v) > 0 || dependent_[v.node().id()]);
  }

  // The sweep meets the first user of an x last, or, where nothing uses it, the x itself.
  void find_first_users(int last) {
    completed_by_.resize(last + 1);
    ValueSet found;
    for (int id = 0; id <= last; ++id)
      for (const Value& input : graph_.nodes()[id]->inputs())
        if (xs_.count(input) > 0 && found.insert(input).second) completed_by_[id].push_back(input);
    for (const Value& x : xs_)
      if (found.count(x) == 0 && x.node().id() <= last) completed_by_[x.node().id()].push_back(x);
  }

  // Adds up what x received. The sum is a node of its own even where there is nothing to add: a
  // gradient that is only passed on would stand where an earlier node made it, and on another
  // replica, whose shapes need a reduction here, somewhere else.
  void complete(const Value& x) {
    const auto dense = dense_.find(x);
    const auto sparse = sparse_.find(x);
    if (dense == dense_.end() && sparse == sparse_.end()) return;
    if (dense == dense_.end()) {
      complete_[x] = join(sparse->second);
      return;
    }
    Value whole = total(dense->second);
    if (sparse != sparse_.end()) whole = sum({whole, join(sparse->second).dense()});
    complete_[x] = {.values = graph_.add("Identity", {whole}).output()};
  }

  void visit(Node& node) {
    if (!dependent_[node.id()]) return;
    if (const CustomGradient* custom = node.custom_gradient()) {
      visit(node, *custom);
      return;
    }
    std::vector<Value> outputs;
    for (size_t i = 0; i < node.outputs().size(); ++i)
      outputs.push_back(node.output(static_cast<int>(i)));
    const std::vector<Value> output_gradients = received(outputs);
    if (!any_defined(output_gradients)) return;
    if (is_lookup(node)) {
      add_slices(node, output_gradients[0]);
    } else {
      propagate(node, output_gradients);
    }
  }

  // Once for all outputs: with the first one, which the sweep meets last.
  void visit(Node& node, const CustomGradient& custom) {
    if (!custom.outputs[0].is_same(node.output())) return;
    const std::vector<Value> output_gradients = received(custom.outputs);
    if (any_defined(output_gradients)) hand_on(node, custom.inputs, custom.run(output_gradients));
  }

  // What each output has got in all, or none.
  std::vector<Value> received(const std::vector<Value>& outputs) {
    std::vector<Value> gradients;
    for (const Value& output : outputs) {
      const auto it = dense_.find(output);
      gradients.push_back(it == dense_.end() ? Value() : total(it->second));
    }
    return gradients;
  }

  static bool any_defined(const std::vector<Value>& values) {
    return std::any_of(values.begin(), values.end(), [](const Value& v) { return v.defined(); });
  }

  void propagate(const Node& node, const std::vector<Value>& output_gradients) {
    if (!node.op().gradient)
      fail(Code::kUnimplemented, node.name(), ": op ", node.op().name, " has no gradient");
    hand_on(node, node.inputs(), node.op().gradient(node, output_gradients));
  }

  // Gives inputs of `node` their gradients.
  void hand_on(const Node& node, const std::vector<Value>& inputs,
               const std::vector<Value>& gradients) {
    COHORT_CHECK(gradients.size() == inputs.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Value& input = inputs[i];
      if (!gradients[i].defined() || !wants_gradient(input)) continue;
      COHORT_CHECK(gradients[i].spec() == input.spec());
      dense_[input].push_back(zero_unless(condition_between(node, input.node()), gradients[i]));
    }
  }

  // Rows gathered from an x that is a whole variable or feed.
  bool is_lookup(const Node& node) const {
    if (node.op().name != "Gather" || node.attributes().get<int64_t>("axis") != 0) return false;
    const Value& table = node.inputs()[0];
    return xs_.count(table) > 0 && table.node().inputs().empty();
  }

  void add_slices(const Node& node, const Value& dy) {
    const Value &table = node.inputs()[0], &indices = node.inputs()[1];
    const int64_t count = indices.shape().num_elements();
    const Value condition = condition_between(node, table.node());
    const Value values = reshape(zero_unless(condition, dy), table.shape().with_dim(0, count));
    const Value rows = rows_if(condition, reshape(indices, Shape{count}));
    sparse_[table].push_back({values, rows, table.shape()[0]});
  }

  // The sum of what a value received, which stays in the list as its only member.
  static Value total(std::vector<Value>& received) {
    received = {sum(received)};
    return received[0];
  }

  Graph& graph_;
  const ValueSet xs_;
  std::vector<bool> dependent_, shared_;          // by node
  std::vector<std::vector<Value>> completed_by_;  // by node whose visit gives the last part
  ValueMap<std::vector<Value>> dense_;            // gradients received so far, in order of arrival
  ValueMap<std::vector<Gradient>> sparse_;
  ValueMap<Gradient> complete_;  // of each x that received something
};

// By id: the nodes from which `loss` is computed.
std::vector<bool> ancestors_of(const Value& loss) {
  std::vector<bool> found(static_cast<size_t>(loss.node().id()) + 1, false);
  found.back() = true;
  for (size_t id = found.size(); id-- > 0;) {
    if (!found[id]) continue;
    for (const Value& input : loss.graph().nodes()[id]->inputs()) found[input.node().id()] = true;
  }
  return found;
}

// Whether one of the nodes between writes the variable that both read.
bool is_written_between(const Node& read, const Node& other) {
  const auto& nodes = read.graph().nodes();
  const auto [first, last] = std::minmax({read.id(), other.id()});
  return std::any_of(nodes.begin() + first, nodes.begin() + last, [&](const auto& node) {
    return node->resource() == read.resource() && node->op().name != "ReadVariable";
  });
}

// For a read `x` without a gradient: that none of the reads of the same value that the loss does
// use was meant.
void check_read(const Value& loss, const std::vector<Value>& xs, const Value& x) {
  const auto used = ancestors_of(loss);
  const auto is_meant = [&](const Node& other) {
    return other.resource() == x.node().resource() && other.op().name == "ReadVariable" &&
           used[other.id()] && !is_written_between(x.node(), other) &&
           std::none_of(xs.begin(), xs.end(),
                        [&](const Value& asked) { return &asked.node() == &other; });
  };
  for (size_t id = 0; id < used.size(); ++id)
    if (is_meant(*loss.graph().nodes()[id]))
      invalid("the loss was computed from another read of variable \"", x.node().resource()->name(),
              "\" than the one given: ask for the gradient of that, or of the variable by "
              "optim::gradients");
}

}  // namespace

Value Gradient::dense() const {
  if (!sparse()) return values;
  return values.graph().add("ScatterAdd", {indices, values}, {{"rows", rows}}).output();
}

std::vector<Gradient> gradients(const Value& loss, const std::vector<Value>& xs) {
  if (!is_floating(loss.dtype()) || loss.shape().rank() != 0)
    invalid("the loss must be a floating scalar, is ", loss.spec(),
            "; reduce it first, or give its gradient");
  const Tensor one = Tensor::full(loss.dtype(), {}, 1);
  return gradients({loss}, xs, {loss.graph().add("Constant", {}, {{"value", one}}).output()});
}

std::vector<Gradient> gradients(const std::vector<Value>& ys, const std::vector<Value>& xs,
                                const std::vector<Value>& grad_ys) {
  check_gradients(ys, grad_ys);
  for (const std::vector<Value>& values : {ys, xs, grad_ys})
    for (const Value& value : values)
      if (&value.graph() != &ys[0].graph())
        invalid(ys[0].node().name(), " and ", value.node().name(),
                " belong to different functions");
  const GraphScope graph_scope(ys[0].graph());
  const Backward backward(ys, xs, grad_ys);
  std::vector<Gradient> out;
  for (const Value& x : xs) {
    out.push_back(backward.of(x));
    if (out.back() || x.node().op().name != "ReadVariable") continue;
    for (const Value& y : ys) check_read(y, xs, x);
  }
  return out;
}

}  // namespace cohort
