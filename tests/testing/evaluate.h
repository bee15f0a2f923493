#pragma once

#include <string>
#include <vector>

#include "core/graph/graph.h"

namespace cohort::testing {

// A variable that only holds its value.
class TestVariable final : public Resource {
 public:
  TestVariable(std::string name, Tensor initial)
      : value(std::move(initial)), name_(std::move(name)) {}
  const std::string& name() const override { return name_; }
  const TensorSpec& spec() const override { return value.spec(); }

  Tensor value;

 private:
  std::string name_;
};

// Runs a graph node by node, in order, each with freshly allocated memory: the plain reference that
// compiled plans are tested against. `feeds` are the graph's inputs in order. Resources must be
// TestVariables.
std::vector<Tensor> evaluate(const std::vector<Value>& outputs,
                             const std::vector<Tensor>& feeds = {});

}  // namespace cohort::testing
