#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "strategies/coordinator/resource_table.h"
#include "strategies/parameter_server/own_variable.h"

namespace cohort::coordinator {

// Variables that each process has apart (OwnVariable::keep_apart), as the workers have them: each
// its own copy, which starts with the initial value, also on a worker that is started again. The
// workers keep the copies for as long as this stays. Thread-safe.
class WorkerCopies {
 public:
  explicit WorkerCopies(std::shared_ptr<ResourceTable> resources)
      : resources_(std::move(resources)) {}

  // The number of a variable's copies among the resources.
  uint64_t of(const std::shared_ptr<OwnVariable>& variable);

 private:
  const std::shared_ptr<ResourceTable> resources_;
  std::mutex mutex_;
  std::map<std::shared_ptr<OwnVariable>, std::shared_ptr<const ResourceHandle>> handles_;
};

}  // namespace cohort::coordinator
