#pragma once

#include "core/graph/graph.h"

namespace cohort {

// While alive, what this thread traces is one side of a conditional, which counts only where
// `condition`, a bool scalar, holds when the function runs. Its nodes are computed either way;
// whoever adds one that has an effect makes it depend on condition(). Scopes nest.
class BranchScope {
 public:
  explicit BranchScope(const Value& condition);
  // The branch of `node`, if it is in one, in place of those that are open.
  explicit BranchScope(const Node& node);
  ~BranchScope();
  BranchScope(const BranchScope&) = delete;
  BranchScope& operator=(const BranchScope&) = delete;

  // What has to hold for all open scopes of `graph`; none where there are none.
  static Value condition(const Graph& graph);

 private:
  Value previous_;
};

// `value`, and zeros where `condition` does not hold; `value` itself where there is none.
Value zero_unless(const Value& condition, const Value& value);

// `indices`, which say what is done to which rows, and -1, which names none, where `condition` does
// not hold; `indices` itself where there is none.
Value rows_if(const Value& condition, const Value& indices);

// What to write to `variable` for it to become `value`, or, in a branch that does not count, to
// stay what it is.
Value value_to_write(const std::shared_ptr<Resource>& variable, const Value& value);

}  // namespace cohort
