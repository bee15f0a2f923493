#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "strategies/coordinator/function_table.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/remote_result.h"
#include "strategies/coordinator/resource_table.h"

namespace cohort::coordinator {

// A call of a function that some worker is to make.
struct Closure {
  std::shared_ptr<FunctionFamily> function;
  // Null where only the worker knows what its arguments are: the batches of a dataset.
  std::shared_ptr<const Definition> definition;
  std::vector<Argument> arguments;
  std::vector<std::shared_ptr<const ResourceHandle>> resources;  // that the arguments name
  size_t bytes = 0;                                              // of the arguments
  std::shared_ptr<RemoteResult> result;
  uint64_t number = 0;  // of the coordinator's closures
  int attempts = 0;
  // Its result is known; it is executed again only because what it did is gone.
  bool executed = false;
  // Of those that one worker executes again in their order; 0: of none.
  uint64_t unit = 0;
  // What its pushes are marked with, from when it is first handed out.
  uint64_t lane = 0, lane_sequence = 0;
};
using ClosurePtr = std::unique_ptr<Closure>;

}  // namespace cohort::coordinator
