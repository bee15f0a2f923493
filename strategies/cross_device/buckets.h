#pragma once

#include <vector>

#include "core/distribute/communication_options.h"
#include "core/graph/gradients.h"

namespace cohort {

// While a step is traced: what Strategy::reduce_gradients promises, for replicas that all want the
// result. Dense gradients are summed bucket by bucket, in the order in which the backward pass
// completes them, each bucket started when its last gradient is there (PyTorch's
// DistributedDataParallel, with buckets laid out when the step is compiled). Sparse ones are
// gathered and each row summed once.
std::vector<Gradient> reduce_in_buckets(const std::vector<Gradient>& gradients,
                                        const CommunicationOptions& options, const Value& when);

}  // namespace cohort
