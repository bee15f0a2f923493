#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cohort.h"
#include "tests/strategies/on_workers.h"
#include "tests/strategies/variables_testing.h"

// What tests of how tf.distribute behaves, case by case, share.
namespace cohort {

using Numbers = std::vector<double>;

inline Tensor floats(const std::vector<float>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}
inline Tensor ints(const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}
inline Tensor zeros(const Shape& shape) { return Tensor::zeros(DType::kFloat32, shape); }

inline const ReplicaContext& replica() { return *get_replica_context(); }

// With two replicas, where a case does not leave the scope and make others.
class TfDistribute : public VariablesTest {
 protected:
  // Another strategy of the same kind.
  std::unique_ptr<Strategy> with_replicas(int replicas) {
    if (!left_) scope_.exit();
    left_ = true;
    return make_strategy({GetParam().kind, replicas});
  }
  // The value of a variable as a function that no strategy runs sees it.
  static double seen_outside(const VariablePtr& v) {
    return function([v](Value x) { return v->read() + x; })({number(0)})[0].item();
  }
  // `value` for the first replica, and `other` for the second.
  static PerReplica<Tensor> two(double value, double other) {
    return {number(value), number(other)};
  }
  std::string file(const std::string& name) const {
    return str(::testing::TempDir(), "/", name, GetParam(), ".safetensors");
  }

 private:
  bool left_ = false;
};

}  // namespace cohort
