#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace cohort::optim {

// The mathematics of an optimizer for one variable: a pure function over values, without reads or
// writes. Every variable of a step gets the same sequence of ops, so that the Plan merges all
// updates into one kernel. A new optimizer is one rule and one factory.
class UpdateRule {
 public:
  // A tensor of the variable's shape kept between steps.
  struct Slot {
    std::string name;
    double initial = 0;
  };

  virtual ~UpdateRule() = default;
  // Of different names.
  virtual std::vector<Slot> slots() const = 0;
  // Scalars that all variables share, computed once a step from float64 scalars: the learning rate
  // and the number of this update, counted from 1. They are handed to `update` in the variable's
  // dtype.
  virtual std::vector<Value> scalars(const Value& learning_rate, const Value& step) const = 0;
  // The variable's new value; `slots` hold the current state in the order of slots() and receive
  // the new one, as many.
  virtual Value update(const Value& variable, const Value& gradient, std::vector<Value>& slots,
                       const std::vector<Value>& scalars) const = 0;
  // Whether a sparse gradient is applied to its rows alone: `update` is then given the rows of the
  // variable, of the gradient and of the slots. So it is where a row with zero gradient is left as
  // it is.
  virtual bool row_wise() const { return false; }
};

// kInvalidArgument for two slots of one name, which could not be saved.
void check_slots(const UpdateRule& rule);
// What rule.update() returns; kInvalidArgument where it leaves another number of slots.
Value apply_rule(const UpdateRule& rule, const Value& variable, const Value& gradient,
                 std::vector<Value>& slots, const std::vector<Value>& scalars);

}  // namespace cohort::optim
