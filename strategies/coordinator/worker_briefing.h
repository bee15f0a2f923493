#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "strategies/coordinator/closure_queue.h"
#include "strategies/coordinator/function_table.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/resource_table.h"

namespace cohort::coordinator {

// A function that a worker lacks, for one signature.
struct Wanted {
  std::shared_ptr<FunctionFamily> function;
  CallSignature signature;
};

// What a worker has been given of functions and resources in the present call, and is still to be
// given. Not synchronised; the table and the queue must stay longer.
class WorkerBriefing {
 public:
  // `worker` is its number among all. What it cannot be given, `queue` learns of.
  WorkerBriefing(ResourceTable& resources, ClosureQueue& queue, int worker, std::string task)
      : resources_(resources), queue_(queue), worker_(worker), task_(std::move(task)) {}

  // A call begins: the worker has nothing, and takes so many bytes in the tensors of a command.
  void begin(size_t max_bytes);
  // Each adds to a message what the worker does not have. Where that is more than it takes, it gets
  // an error in place of a function, and of a resource that is the error of all that is scheduled.
  void add_definition(const std::shared_ptr<const Definition>& definition, ToWorker& message);
  void add_news(ToWorker& message);
  // What the worker says that it lacks, traced where it has to be, or the error of that.
  void add_wanted(std::vector<Wanted> wanted, ToWorker& message);

 private:
  void add_resource(const ResourceSpec& spec, ToWorker& message);
  Error excess(const std::string& what, size_t bytes) const;

  ResourceTable& resources_;
  ClosureQueue& queue_;
  const int worker_;
  const std::string task_;
  size_t max_bytes_ = 0;
  std::set<const Definition*> defined_;
  uint64_t last_resource_ = 0;
};

}  // namespace cohort::coordinator
