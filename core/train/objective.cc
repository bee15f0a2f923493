#include "core/train/objective.h"

#include <algorithm>
#include <cmath>

#include "core/base/comma_separated.h"

namespace cohort {
namespace {

constexpr std::string_view kLabel = "label", kWeight = "weight";

std::string of_output(std::string_view kind, const std::string& output) {
  return output.empty() ? std::string(kind) : str(kind, '/', output);
}

bool is_kind(std::string_view name, std::string_view kind) {
  return name.starts_with(kind) && (name.size() == kind.size() || name[kind.size()] == '/');
}

// Which output has that name, which `what` names, for messages.
size_t index_of(const std::string& name, std::string_view what,
                const std::vector<std::string>& outputs) {
  const auto found = std::find(outputs.begin(), outputs.end(), name);
  if (found == outputs.end())
    invalid("compile: ", what, " names \"", name, "\", and the model has ", in_words(outputs));
  return static_cast<size_t>(found - outputs.begin());
}

// Calls set(objective, value) for what each output may have one of: all in order, or all by name.
template <typename T, typename Set>
void set_one_each(const PerOutput<T>& given, std::string_view what,
                  const std::vector<std::string>& outputs, std::vector<Objective>& all,
                  const Set& set) {
  const auto& entries = given.entries();
  const auto in_order = static_cast<size_t>(std::count_if(
      entries.begin(), entries.end(), [](const auto& entry) { return entry.output.empty(); }));
  if (in_order > 0 && (in_order != entries.size() || in_order != outputs.size()))
    invalid("compile: ", what, " has ", entries.size(), entries.size() == 1 ? " entry" : " entries",
            ", and the model has ", in_words(outputs),
            ": give one for each in this order, or by their names");
  std::vector<bool> is_set(outputs.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].output;
    const size_t output = name.empty() ? i : index_of(name, what, outputs);
    if (is_set[output]) invalid("compile: ", what, " names \"", name, "\" twice");
    is_set[output] = true;
    set(all[output], entries[i].value);
  }
}

// Adds the metrics of each output, under the names of their results.
void add_metrics(const PerOutput<metrics::Metric>& given, const std::vector<std::string>& outputs,
                 std::vector<Objective>& all, std::vector<metrics::Metric> Objective::*list) {
  for (const auto& entry : given.entries()) {
    const std::string &name = entry.value.name(), what = str("the metric \"", name, '"');
    if (entry.output.empty() && outputs.size() > 1)
      invalid("compile: ", what, " does not say of which output; the model has ", in_words(outputs),
              ", as in {\"", outputs.front(), "\", metric}");
    Objective& objective = all[entry.output.empty() ? 0 : index_of(entry.output, what, outputs)];
    (objective.*list).push_back(entry.value.renamed(result_of(objective.name, name)));
  }
}

}  // namespace

std::string label_of(const std::string& output) { return of_output(kLabel, output); }
std::string weight_of(const std::string& output) { return of_output(kWeight, output); }
std::string result_of(const std::string& output, const std::string& result) {
  return output.empty() ? result : str(output, '_', result);
}
bool is_target(std::string_view name) { return is_kind(name, kLabel) || is_kind(name, kWeight); }

std::string in_words(const std::vector<std::string>& outputs) {
  if (outputs.size() == 1) return "one output, without a name";
  return "the outputs " +
         comma_separated(outputs, [](const std::string& name) { return str('"', name, '"'); });
}

std::vector<Objective> objectives_of(const CompileOptions& options,
                                     const std::vector<std::string>& outputs) {
  std::vector<Objective> all;
  for (size_t i = 0; i < outputs.size(); ++i) all.push_back({.output = i, .name = outputs[i]});
  set_one_each(options.loss, "loss", outputs, all,
               [](Objective& each, const losses::Loss& loss) { each.loss = loss; });
  set_one_each(options.loss_weights, "loss_weights", outputs, all,
               [](Objective& each, double weight) {
                 if (!std::isfinite(weight))
                   invalid("compile: a loss weight must be finite, got ", weight);
                 if (!each.loss)
                   invalid("compile: loss_weights has a weight for ",
                           each.name.empty() ? "the only output" : str('"', each.name, '"'),
                           ", which has no loss");
                 each.loss_weight = weight;
               });
  add_metrics(options.metrics, outputs, all, &Objective::metrics);
  add_metrics(options.weighted_metrics, outputs, all, &Objective::weighted_metrics);
  std::erase_if(all, [](const Objective& each) {
    return !each.loss && each.metrics.empty() && each.weighted_metrics.empty();
  });
  return all;
}

}  // namespace cohort
