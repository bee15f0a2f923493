#pragma once

#include <memory>

#include "core/kernels/kernel.h"

namespace cohort {

// The kernel of an elementwise node or an AssignVariable of which this replica computes a part: of
// every tensor the same one, in the place that it has in the whole (attribute `part`: which of how
// many, see part_of). Tensors of one element are for all parts.
std::unique_ptr<Kernel> make_part_kernel(const KernelSpec& spec);

}  // namespace cohort
