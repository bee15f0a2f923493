#pragma once

#include <functional>
#include <vector>

#include "core/graph/graph.h"

namespace cohort::testing {

// float64 tensors of random numbers in [low, high), from a seed that the test prints when it fails.
struct RandomInput {
  Shape shape;
  double low = -1;
  double high = 1;
};

using GraphBuilder = std::function<Value(const std::vector<Value>&)>;

// Expects that gradients() of fn agrees with central differences in float64: fn's result, of any
// shape, is made a scalar by random weights. `fixed` are further inputs, of any dtype, that are not
// differentiated and come after the random ones.
void check_gradients(const GraphBuilder& fn, const std::vector<RandomInput>& inputs,
                     const std::vector<Tensor>& fixed = {}, double tolerance = 1e-6);
// The same at given float64 points, for functions with kinks.
void check_gradients_at(const GraphBuilder& fn, const std::vector<Tensor>& points,
                        const std::vector<Tensor>& fixed = {}, double tolerance = 1e-6);
// Also of the gradient: checks the second derivatives.
void check_second_gradients(const GraphBuilder& fn, const std::vector<RandomInput>& inputs,
                            const std::vector<Tensor>& fixed = {}, double tolerance = 1e-5);

}  // namespace cohort::testing
