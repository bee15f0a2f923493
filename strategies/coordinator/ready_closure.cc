#include "strategies/coordinator/ready_closure.h"

#include <memory>
#include <variant>

#include "core/base/error.h"
#include "strategies/coordinator/replica_inputs.h"

namespace cohort::coordinator {
namespace {

// One more input: the same for every replica, or what each of them gets of it.
void add(ReadyClosure& ready, const Tensor& tensor) {
  ready.signature.tensors.push_back(tensor.spec());
  for (auto& of_replica : ready.inputs) of_replica.push_back(tensor);
}
void add(ReadyClosure& ready, const TensorSpec& whole, const PerReplica<Tensor>& parts) {
  ready.signature.tensors.push_back(whole);
  for (size_t r = 0; r < parts.size(); ++r) ready.inputs[r].push_back(parts[r]);
}

// Each replica gets rows of its own.
void add_batch(ReadyClosure& ready, const std::vector<Tensor>& batch) {
  const auto replicas = static_cast<int>(ready.inputs.size());
  if (replicas == 1) {
    for (const Tensor& tensor : batch) add(ready, tensor);
    return;
  }
  const PerReplica<std::vector<Tensor>> parts = rows_on_replicas(batch, replicas);
  for (size_t i = 0; i < batch.size(); ++i) {
    PerReplica<Tensor> rows(parts.size());
    for (size_t r = 0; r < parts.size(); ++r) rows[r] = parts[r][i];
    add(ready, batch[i].spec(), rows);
  }
}

void add_argument(ReadyClosure& ready, const Argument& argument, WorkerResources& resources) {
  Parameter& parameter = ready.signature.parameters.emplace_back(argument.parameter);
  if (argument.resource == 0) {
    for (const Tensor& tensor : argument.tensors) add(ready, tensor);
    return;
  }
  WorkerResources::Kept& resource = resources.get(argument.resource);
  const auto* variable = std::get_if<std::shared_ptr<Variable>>(&resource.what);
  if (variable != nullptr) return add(ready, (*variable)->value());
  parameter.per_replica = ready.inputs.size() > 1;
  if (const auto* values = std::get_if<PerReplica<Tensor>>(&resource.what))
    return add(ready, (*values)[0].spec(), *values);
  if (!parameter.is_batch)
    invalid("dataset \"", resource.name, "\" is given to a parameter that takes one tensor");
  std::vector<Tensor> batch;
  for (const data::Field& field : resources.next_of(resource)) {
    parameter.names.push_back(field.name);
    batch.push_back(field.tensor);
  }
  add_batch(ready, batch);
}

}  // namespace

ReadyClosure gather(const Run& run, WorkerResources& resources, int replicas) {
  ReadyClosure ready{.id = run.id,
                     .function = run.function,
                     .signature = {},
                     .inputs = PerReplica<std::vector<Tensor>>(static_cast<size_t>(replicas)),
                     .seed = run.seed,
                     .number = run.number,
                     .lane = run.lane,
                     .lane_sequence = run.lane_sequence};
  for (const Argument& argument : run.arguments) add_argument(ready, argument, resources);
  return ready;
}

}  // namespace cohort::coordinator
