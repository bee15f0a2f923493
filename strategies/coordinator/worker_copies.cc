#include "strategies/coordinator/worker_copies.h"

namespace cohort::coordinator {

uint64_t WorkerCopies::of(const std::shared_ptr<OwnVariable>& variable) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const ResourceHandle>& handle = handles_[variable];
  if (handle == nullptr)
    handle = resources_->add(
        {.create = {.resource = 0,
                    .what = CreateVariable{variable->name(), variable->initial_value(),
                                           variable->synchronization(), variable->aggregation()}},
         .definition = {},
         .resources = {}});
  return handle->id();
}

}  // namespace cohort::coordinator
