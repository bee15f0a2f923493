#include "core/distribute/step_function.h"

#include <algorithm>

#include "core/base/comma_separated.h"
#include "core/base/random.h"
#include "core/distribute/strategy.h"

namespace cohort {
namespace {

std::string quoted(const std::vector<std::string>& names) {
  if (names.empty()) return "nothing";
  const auto quote = [](const std::string& name) { return str('"', name, '"'); };
  return comma_separated(names, quote);
}

}  // namespace

BatchValues::BatchValues(std::vector<std::string> names, std::vector<Value> values)
    : names_(std::move(names)), values_(std::move(values)) {}

const Value& BatchValues::operator[](std::string_view name) const {
  const auto at = std::find(names_.begin(), names_.end(), name);
  if (at != names_.end()) return values_[static_cast<size_t>(at - names_.begin())];
  fail(Code::kNotFound, "the batch has no tensor \"", name, "\"; it has ", quoted(names_));
}

bool BatchValues::contains(std::string_view name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}

int64_t BatchValues::rows() const {
  if (values_.empty() || values_[0].shape().rank() == 0) invalid("the batch has no rows");
  return values_[0].shape()[0];
}

int64_t BatchValues::global_rows() const {
  rows();
  int64_t total = 0;
  for (const Shape& shape : shapes_on_replicas(values_[0])) total += shape[0];
  return total;
}

namespace internal {

void StepArguments::add_same(const Tensor& tensor) {
  for (auto& replica : tensors) replica.push_back(tensor);
  same.push_back(true);
}

void StepArguments::add_each(const PerReplica<Tensor>& parts) {
  check_replicas(parts.size());
  for (size_t r = 0; r < tensors.size(); ++r) tensors[r].push_back(parts[r]);
  same.push_back(false);
}

void StepArguments::check_replicas(size_t given) const {
  if (given != tensors.size())
    invalid("an argument of run has values for ", given, " replicas; the strategy has ",
            tensors.size());
}

void StepArguments::check_names(const std::vector<std::string>& first,
                                const std::vector<std::string>& other, size_t replica) {
  if (first != other)
    invalid("the replicas' batches differ: replica 0 has ", quoted(first), ", replica ", replica,
            " has ", quoted(other));
}

const Function& StepState::find(const ParameterNames& names) {
  const auto body = [this, names](const std::vector<Value>& inputs) {
    return body_(inputs, names);
  };
  return functions_.try_emplace(names, body, name_).first->second;
}

const Function& StepState::function(const ParameterNames& names) {
  const std::lock_guard lock(mutex_);
  return find(names);
}

std::vector<PerReplica<Tensor>> StepState::run(Strategy& strategy,
                                               const std::function<StepArguments()>& arguments) {
  int64_t step = 0;
  {
    // Also a run of wrong arguments counts, as it does for the other workers.
    const std::lock_guard lock(mutex_);
    step = runs_++;
  }
  const StepArguments given = together(strategy.workers(), arguments);
  const auto outputs = strategy.run(
      function(given.names), given.tensors,
      {.seed = global_seed(), .step = step, .precision = precision_, .same_input = given.same});
  std::vector<PerReplica<Tensor>> results(outputs[0].size(), PerReplica<Tensor>(outputs.size()));
  for (size_t r = 0; r < outputs.size(); ++r) {
    if (outputs[r].size() != results.size())
      invalid("step \"", name_, "\" returns ", results.size(), " values on replica 0 and ",
              outputs[r].size(), " on replica ", r);
    for (size_t i = 0; i < results.size(); ++i) results[i][r] = outputs[r][i];
  }
  return results;
}

int StepState::trace_count() const {
  const std::lock_guard lock(mutex_);
  int count = 0;
  for (const auto& [names, function] : functions_) count += function.trace_count();
  return count;
}

void StepState::continue_at(int64_t runs) {
  if (runs < 0)
    invalid("step \"", name_, "\" cannot continue at ", runs, " runs; it can at 0 or more");
  const std::lock_guard lock(mutex_);
  runs_ = runs;
}

size_t local_replicas(const Strategy& strategy) { return strategy.devices().size(); }

}  // namespace internal
}  // namespace cohort
