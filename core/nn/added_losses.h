#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace cohort::nn {

// What layers that this thread calls add to the loss (LayerBase::add_loss), while this is the last
// of these objects that was made. fit() and evaluate() have one around the network; a step of one's
// own makes one, and gives each loss the part that its rows have of all. Without any, what layers
// add is passed over.
class AddedLosses {
 public:
  AddedLosses();
  ~AddedLosses();
  AddedLosses(const AddedLosses&) = delete;
  AddedLosses& operator=(const AddedLosses&) = delete;

  // Scalars, one for each call of add_loss().
  const std::vector<Value>& values() const { return values_; }

 private:
  friend class LayerBase;
  static void add(const Value& loss);

  std::vector<Value> values_;
  AddedLosses* outer_;
};

}  // namespace cohort::nn
