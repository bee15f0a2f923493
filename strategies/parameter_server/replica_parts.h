#pragma once

#include <vector>

#include "core/runtime/function.h"
#include "core/runtime/variable.h"

namespace cohort::parameter_server {

// Whether something says how the copies of replicas make one value; else they are only theirs.
bool can_be_merged(const Variable& variable);

// The memory of a variable that is synchronised on read for each of several replicas of a process:
// parts of one value, which replicas read and write for themselves.
class ReplicaParts {
 public:
  // `variable` must outlive this.
  ReplicaParts(const Variable& variable, int replicas);

  const Tensor& of(int replica) const { return parts_[static_cast<size_t>(replica)]; }
  // Gives each replica its part of a value that is assigned outside.
  void divide(const Tensor& value);
  // The value that the parts make; the first one where nothing says how they make one.
  Tensor merged() const;

 private:
  const Function divide_, merge_;
  std::vector<Tensor> parts_;
};

}  // namespace cohort::parameter_server
