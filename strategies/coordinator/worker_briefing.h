#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

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
// given. Not synchronised; the table must stay longer.
class WorkerBriefing {
 public:
  WorkerBriefing(ResourceTable& resources, int worker) : resources_(resources), worker_(worker) {}

  // A call begins: the worker has nothing.
  void begin();
  // Each adds to a message what the worker does not have.
  void add_definition(const std::shared_ptr<const Definition>& definition, ToWorker& message);
  void add_news(ToWorker& message);
  // What the worker says that it lacks, traced where it has to be, or the error of that.
  void add_wanted(std::vector<Wanted> wanted, ToWorker& message);

 private:
  ResourceTable& resources_;
  const int worker_;
  std::set<const Definition*> defined_;
  uint64_t last_resource_ = 0;
};

}  // namespace cohort::coordinator
