#include "strategies/coordinator/worker_copies.h"

#include "strategies/coordinator/name_on_workers.h"

namespace cohort::coordinator {

const WorkerCopies::Copies& WorkerCopies::of(const std::shared_ptr<OwnVariable>& variable) {
  const std::lock_guard lock(mutex_);
  Copies& copies = copies_[variable];
  if (copies.handle != nullptr) return copies;
  copies.name = name_on_workers(variable->name());
  copies.handle = resources_->add(
      {.create = {.resource = 0,
                  .what = CreateVariable{copies.name, variable->initial_value(),
                                         variable->synchronization(), variable->aggregation(),
                                         variable->kept().value()}},
       .definition = {},
       .resources = {}});
  return copies;
}

}  // namespace cohort::coordinator
