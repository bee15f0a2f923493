#include <algorithm>

#include "core/base/part.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"

namespace cohort {
namespace {

using Numbers = std::vector<int64_t>;

const Value& reduced_input(const Node& start, int output) {
  return start.inputs()[static_cast<size_t>(output)];
}

// Whether a value is the product of x, [rows, m], and dy, [rows, n], over their rows. Neither may
// be the memory of a variable, which may have been written when they are gathered.
bool is_product_of_rows(const Value& value) {
  const Node& node = value.node();
  const auto is_of_variable = [](const Value& factor) {
    return origin(factor).resource() != nullptr;
  };
  return node.op().name == "MatMul" && value.shape().rank() == 2 &&
         node.attributes().get<bool>("transpose_a") &&
         !node.attributes().get<bool>("transpose_b") &&
         std::none_of(node.inputs().begin(), node.inputs().end(), is_of_variable);
}

// Whether the rows of all replicas are few enough, and each has a part of the product. All of x and
// dy would be read and written once; of the product m * n elements are written, read and added.
// Half of that is taken for the limit.
bool are_few(const Node& product, int64_t replicas) {
  const Shape &x = product.inputs()[0].shape(), &dy = product.inputs()[1].shape();
  const int64_t elements = x[1] * dy[1];
  return x[0] > 0 && elements >= replicas * kPartUnit &&
         2 * replicas * x[0] * (x[1] + dy[1]) <= elements;
}

class Gatherer {
 public:
  Gatherer(const GraphFunction& function, const std::set<ReducedValue>& factored)
      : function_(function),
        factored_(factored),
        starts_(number_starts(function)),
        rewrite_(function) {
    for (const auto& [start, number] : starts_)
      for (int i = 0; i < static_cast<int>(start->inputs().size()); ++i)
        if (is_factored(*start, i)) products_.insert(&reduced_input(*start, i).node());
  }

  GraphFunction run() {
    for (const auto& node : function_.graph->nodes()) {
      if (products_.count(node.get()) > 0) continue;
      if (is_start(*node) && !kept(*node).empty())
        copy_start(*node);
      else if (is_wait(*node))
        copy_wait(*node);
      else if (!is_start(*node))
        rewrite_.copy(*node);
    }
    return rewrite_.finish();
  }

 private:
  bool is_factored(const Node& start, int output) const {
    return factored_.count({starts_.at(&start), output}) > 0;
  }

  // The numbers of the values that are reduced as before.
  std::vector<int> kept(const Node& start) const {
    std::vector<int> values;
    for (int i = 0; i + 1 < static_cast<int>(start.outputs().size()); ++i)
      if (!is_factored(start, i)) values.push_back(i);
    return values;
  }

  // Value `values[i]` of a node is number i of the one that stands for it.
  void map_values(Node& node, Node& added, const std::vector<int>& values) {
    for (size_t i = 0; i < values.size(); ++i)
      rewrite_.map(node.output(values[i]), added.output(static_cast<int>(i)));
  }

  void copy_start(Node& start) {
    const std::vector<int> values = kept(start);
    std::vector<Value> inputs;
    for (const int i : values) inputs.push_back(rewrite_(reduced_input(start, i)));
    Attributes attributes = start.attributes();
    for (const char* const name : {"divided", "unwanted"})
      if (attributes.has(name))
        attributes.set(name, renumbered(attributes.get<Numbers>(name), values));
    Node& added = rewrite_.add(start, start.op().name, inputs, std::move(attributes));
    map_values(start, added, values);
    const int operation = static_cast<int>(start.outputs().size()) - 1;
    rewrite_.map(start.output(operation), added.output(static_cast<int>(values.size())));
  }

  // Where the numbers listed have come to, of those kept.
  static Numbers renumbered(const Numbers& listed, const std::vector<int>& values) {
    Numbers found;
    for (size_t i = 0; i < values.size(); ++i)
      if (std::find(listed.begin(), listed.end(), values[i]) != listed.end())
        found.push_back(static_cast<int64_t>(i));
    return found;
  }

  void copy_wait(Node& wait) {
    const Node& start = wait.inputs()[0].node();
    const std::vector<int> values = kept(start);
    if (!values.empty()) {
      std::vector<Value> inputs;
      for (const int i : values) inputs.push_back(rewrite_(wait.inputs()[static_cast<size_t>(i)]));
      inputs.push_back(rewrite_(wait.inputs().back()));
      map_values(wait, rewrite_.add(wait, wait.op().name, inputs, wait.attributes()), values);
    }
    for (int i = 0; i < static_cast<int>(wait.outputs().size()); ++i)
      if (is_factored(start, i)) rewrite_.map(wait.output(i), own_part_of_sum(start, i));
  }

  Value own_part_of_sum(const Node& start, int output) {
    const Node& product = reduced_input(start, output).node();
    const auto& part = start.attributes().get<Numbers>("part");
    const Part own = part_of(product.outputs()[0].shape.num_elements(), part[0], part[1]);
    const int64_t columns = product.outputs()[0].shape[1];
    Attributes attributes = product.attributes();
    attributes.set("rows", Numbers{own.begin / columns, (own.end + columns - 1) / columns});
    const Value x = gathered(product, product.inputs()[0], part[1]);
    const Value dy = gathered(product, product.inputs()[1], part[1]);
    return rewrite_.add(product, "MatMul", {x, dy}, std::move(attributes)).output();
  }

  // Once for each factor, however many products it is of.
  Value gathered(const Node& product, const Value& factor, int64_t replicas) {
    Value& all = gathered_[factor];
    if (!all.defined()) {
      const Numbers extents(static_cast<size_t>(replicas), factor.shape()[0]);
      all = rewrite_.add(product, "AllGather", {rewrite_(factor)}, {{"extents", extents}}).output();
    }
    return all;
  }

  const GraphFunction& function_;
  const std::set<ReducedValue>& factored_;
  const std::map<const Node*, int> starts_;
  Rewriter rewrite_;
  std::set<const Node*> products_;  // that are not computed
  ValueMap<Value> gathered_;
};

}  // namespace

std::set<ReducedValue> find_factored(const GraphFunction& function, const Division& division) {
  const Users users(function);
  std::set<ReducedValue> factored;
  for (const auto& [start, number] : number_starts(function)) {
    if (!start->attributes().get_or<bool>("adds_alike", false)) continue;
    for (int i = 0; i + 1 < static_cast<int>(start->outputs().size()); ++i) {
      const Value& value = reduced_input(*start, i);
      const auto sum = division.sums.find({number, i});
      const auto& reduced = start->inputs();
      if (sum != division.sums.end() && is_product_of_rows(value) &&
          users.only_user(value) == start && are_few(value.node(), sum->second) &&
          std::count_if(reduced.begin(), reduced.end(),
                        [&](const Value& other) { return other.is_same(value); }) == 1)
        factored.insert(sum->first);
    }
  }
  return factored;
}

GraphFunction gather_factors(const GraphFunction& function,
                             const std::set<ReducedValue>& factored) {
  return Gatherer(function, factored).run();
}

}  // namespace cohort
