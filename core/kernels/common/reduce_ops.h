#pragma once

#include "core/kernels/common/convert.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/reduce_types.h"
#include "core/kernels/kernel.h"

namespace cohort {

// Makes the kernel of a reduction from a class template K<element type, functor>, constructed from
// the spec, the value that changes nothing, and whether the sum is divided by the number of what
// was added.
template <template <typename, typename> class K>
std::unique_ptr<Kernel> make_reduction(const KernelSpec& spec) {
  std::unique_ptr<Kernel> kernel;
  dispatch(NumberTypes{}, spec.inputs[0].dtype, spec.op, [&]<typename T>() {
    if (spec.op == "ReduceMax")
      kernel = std::make_unique<K<T, functors::Maximum>>(spec, extreme<T>(-1), false);
    else if (spec.op == "ReduceMin")
      kernel = std::make_unique<K<T, functors::Minimum>>(spec, extreme<T>(1), false);
    else if (spec.op == "ReduceProd")
      kernel = std::make_unique<K<T, functors::Mul>>(spec, 1, false);
    else
      kernel = std::make_unique<K<T, functors::Add>>(spec, 0, spec.op == "ReduceMean");
  });
  return kernel;
}

// Registers all reductions of a device.
template <template <typename, typename> class K>
void register_reductions(DeviceType type) {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd"})
    KernelRegistration(op, type, make_reduction<K>);
}

}  // namespace cohort
