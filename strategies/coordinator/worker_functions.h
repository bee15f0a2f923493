#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/graph/graph_function.h"
#include "core/runtime/plan.h"
#include "core/runtime/variable.h"
#include "strategies/coordinator/messages.h"
#include "strategies/coordinator/worker_resources.h"
#include "strategies/parameter_server/server_function.h"
#include "strategies/parameter_server/server_variable.h"

namespace cohort::coordinator {

// A function that a coordinator has sent, for one signature: compiled, or, where it uses variables
// of parameter servers, with what pulls these and pushes to them.
struct CompiledFunction {
  CallSignature signature;
  Precision precision = Precision::kFloat32;
  std::vector<GraphFunction> graphs;
  std::vector<Plan> plans;  // by replica
  std::unique_ptr<ServerFunction> server_function;
  // By resource, those of its variables that are KeptApart::kCount.
  std::map<uint64_t, std::shared_ptr<Variable>> counts;
  std::optional<Error> error;  // instead
};

// The functions of a worker. Not synchronised.
class WorkerFunctions {
 public:
  // All stay longer; `servers` is null where there are none. A replica is on each of `devices`.
  WorkerFunctions(const Attach& attach, const std::vector<Device>& devices,
                  const std::shared_ptr<ServerSession>& servers, const WorkerResources& resources)
      : attach_(attach), devices_(devices), servers_(servers), resources_(resources) {}

  // From what may be hostile: throws where it does not fit, and leaves `compiled` in part.
  void compile(const Define& define, CompiledFunction& compiled);
  // In place of one for the same signature.
  void add(uint64_t function, CompiledFunction compiled);
  // Null where it is not known. Stays until another one is added.
  CompiledFunction* find(uint64_t function, const CallSignature& signature);
  // For any number of signatures each.
  size_t size() const { return functions_.size(); }

 private:
  GraphFunction import(const Define& define, const Tensor& graph);
  // The variables of parameter servers that a function uses, by its names for them.
  std::map<std::string, std::shared_ptr<ServerVariable>> attach_variables(const Define& define);
  int num_replicas() const { return static_cast<int>(devices_.size()); }

  const Attach& attach_;
  const std::vector<Device>& devices_;
  const std::shared_ptr<ServerSession>& servers_;
  const WorkerResources& resources_;
  std::map<uint64_t, std::vector<CompiledFunction>> functions_;
  // By description, but for the name.
  std::map<std::string, std::shared_ptr<ServerVariable>> server_variables_;
};

}  // namespace cohort::coordinator
