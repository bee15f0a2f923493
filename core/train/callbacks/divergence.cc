#include "core/train/callbacks/divergence.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "core/distribute/row_variable.h"

namespace cohort::callbacks {
namespace {

bool is_finite(const Tensor& tensor) {
  if (!is_floating(tensor.dtype())) return true;
  bool finite = true;
  dispatch(FloatTypes{}, tensor.dtype(), "a variable", [&]<typename T>() {
    finite = std::ranges::all_of(tensor.values<T>(), [](const T& value) {
      return std::isfinite(static_cast<double>(value));
    });
  });
  return finite;
}

// The name of the first variable with values that are no finite numbers; empty where there is none.
// Only what is trained is asked: a constant may be infinite, and statistics of finite activations
// are finite.
std::string find_diverged(const Variables& trained) {
  for (const auto& variable : trained) {
    // Reading such a one is a call of all workers.
    if (variable->synchronization() == Synchronization::kOnRead) continue;
    const RowVariable* table = as_row_variable(*variable);
    if (!is_finite(table ? table->rows_in_use().values : variable->value()))
      return variable->name();
  }
  return "";
}

}  // namespace

bool has_diverged(const Training& training) {
  const Logs logs = training.logs();
  const auto loss = logs.find("loss");
  return loss != logs.end() && !std::isfinite(loss->second);
}

bool SaveGuard::refuses(Training& training) {
  const Model& model = training.model();
  std::string what;
  if (has_diverged(training))
    what = "the loss";
  else
    what = from_chief(model.strategy().workers(), "whether the weights are numbers",
                      [&] { return find_diverged(model.trainable_variables()); });
  if (!what.empty() && !refused_ && model.strategy().is_chief())
    std::cerr << str("warning: ", callback_, " does not save in epoch ", training.epoch() + 1,
                     " after step ", training.step(), ": ", what,
                     " is not a finite number any more\n");
  refused_ = !what.empty();
  return refused_;
}

}  // namespace cohort::callbacks
