#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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

  struct Copies {
    std::shared_ptr<const ResourceHandle> handle;
    std::string name;  // on the workers, where no other variable has it
  };
  // Those of a variable; makes them where there are none. The reference stays good.
  const Copies& of(const std::shared_ptr<OwnVariable>& variable);

 private:
  const std::shared_ptr<ResourceTable> resources_;
  std::mutex mutex_;
  std::map<std::shared_ptr<OwnVariable>, Copies> copies_;
};

}  // namespace cohort::coordinator
