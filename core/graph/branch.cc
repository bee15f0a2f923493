#include "core/graph/branch.h"

#include "core/base/error.h"
#include "core/graph/indices.h"

namespace cohort {
namespace {

thread_local Value t_condition;

Value both(const Value& a, const Value& b) { return a.graph().add("LogicalAnd", {a, b}).output(); }

Value select(const Value& condition, const Value& a, const Value& b) {
  return a.graph().add("Select", {condition, a, b}).output();
}

Value scalar(const Value& like, double value) {
  const Tensor constant = Tensor::full(like.dtype(), {}, value);
  return like.graph().add("Constant", {}, {{"value", constant}}).output();
}

}  // namespace

BranchScope::BranchScope(const Value& condition) : previous_(t_condition) {
  const TensorSpec wanted{DType::kBool, {}};
  if (condition.spec() != wanted)
    invalid("a condition must be ", wanted, ", got ", condition.spec());
  const Value outer = BranchScope::condition(condition.graph());
  t_condition = outer.defined() ? both(outer, condition) : condition;
}

BranchScope::BranchScope(const Node& node) : previous_(t_condition) {
  if (node.branch().defined()) t_condition = node.branch();
}

BranchScope::~BranchScope() { t_condition = previous_; }

Value BranchScope::condition(const Graph& graph) {
  return t_condition.defined() && &t_condition.graph() == &graph ? t_condition : Value();
}

Value zero_unless(const Value& condition, const Value& value) {
  return condition.defined() ? select(condition, value, scalar(value, 0)) : value;
}

Value rows_if(const Value& condition, const Value& indices) {
  if (!condition.defined()) return indices;
  const Value rows = with_sign(indices);
  return select(condition, rows, scalar(rows, -1));
}

Value value_to_write(const std::shared_ptr<Resource>& variable, const Value& value) {
  const Value condition = BranchScope::condition(value.graph());
  if (!condition.defined()) return value;
  return select(condition, value, value.graph().add("ReadVariable", {}, {}, variable).output());
}

}  // namespace cohort
