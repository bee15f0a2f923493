#include "strategies/coordinator/worker_resources.h"

#include <optional>
#include <utility>

#include "strategies/coordinator/dataset_registry.h"
#include "strategies/coordinator/end_of_data.h"
#include "strategies/variables/mirrored_variable.h"

namespace cohort::coordinator {

WorkerResources::What WorkerResources::make(const CreateVariable& variable) const {
  // It is read, and written, without a coordinator that would get the error.
  if (variable.kept != KeptApart::kState && variable.aggregation == Aggregation::kNone)
    invalid("a sum, or its count, has no value");
  if (variable.kept == KeptApart::kCount && variable.value.num_elements() != 1)
    invalid("a count is ", variable.value.spec());
  return make_mirrored_variable({.name = variable.name,
                                 .spec = variable.value.spec(),
                                 .initial_value = [&] { return variable.value; },
                                 .synchronization = variable.synchronization,
                                 .aggregation = variable.aggregation},
                                devices_);
}

WorkerResources::What WorkerResources::make(const CreateIterator& iterator) {
  // Made ahead: while others compute, and so that a wait for an element can be cancelled.
  return dataset(iterator.dataset).prefetch(1).iterate({.epoch = iterator.pass});
}

const data::Dataset& WorkerResources::dataset(const std::string& name) {
  const auto found = datasets_.find(name);
  if (found != datasets_.end()) return found->second;
  const InputContext context{.num_input_pipelines = attach_.num_workers,
                             .input_pipeline_id = attach_.worker_index,
                             .num_replicas_in_sync = static_cast<int>(devices_.size()),
                             .independent = true};
  return datasets_.emplace(name, make_registered_dataset(name, context)).first->second;
}

void WorkerResources::keep(uint64_t id, Kept kept) { kept_.insert_or_assign(id, std::move(kept)); }

std::optional<WorkerResources::Kept> WorkerResources::take(uint64_t id) {
  auto taken = kept_.extract(id);
  if (taken.empty()) return std::nullopt;
  return std::move(taken.mapped());
}

WorkerResources::Kept& WorkerResources::get(uint64_t id) {
  const auto found = kept_.find(id);
  if (found == kept_.end()) fail(Code::kNotFound, attach_.worker, " has no resource ", id);
  if (const auto* error = std::get_if<Error>(&found->second.what)) throw *error;
  return found->second;
}

data::Element WorkerResources::next_of(Kept& iterator) const {
  std::optional<data::Element> element;
  try {
    element = std::get<data::Iterator>(iterator.what).next();
  } catch (const Error& error) {
    throw error.with_context(str("dataset \"", iterator.name, '"'));
  }
  if (!element) throw end_of_data(iterator.name, attach_.worker);
  return std::move(*element);
}

std::shared_ptr<Variable> WorkerResources::variable(const std::string& name) const {
  for (const auto& [id, kept] : kept_) {
    if (kept.name != name) continue;
    if (const auto* error = std::get_if<Error>(&kept.what)) throw *error;
    if (const auto* made = std::get_if<std::shared_ptr<Variable>>(&kept.what)) return *made;
  }
  return nullptr;
}

std::map<uint64_t, std::shared_ptr<Variable>> WorkerResources::counts_in(
    const std::set<const Resource*>& used) const {
  std::map<uint64_t, std::shared_ptr<Variable>> counts;
  for (const auto& [id, kept] : kept_) {
    const auto* variable = std::get_if<std::shared_ptr<Variable>>(&kept.what);
    if (variable != nullptr && kept.kept == KeptApart::kCount && used.contains(variable->get()))
      counts.emplace(id, *variable);
  }
  return counts;
}

void WorkerResources::forget_sums() {
  for (auto& [id, kept] : kept_) {
    const auto* variable = std::get_if<std::shared_ptr<Variable>>(&kept.what);
    if (variable == nullptr || kept.kept == KeptApart::kState) continue;
    const TensorSpec& spec = (*variable)->spec();
    (*variable)->assign(Tensor::zeros(spec.dtype, spec.shape));
  }
}

}  // namespace cohort::coordinator
