#include "core/train/callbacks/divergence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/notice.h"
#include "core/train/callbacks/moment.h"

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

// The name of the first variable with values in `snapshot` that are no finite numbers; empty where
// there is none. Only what is trained is asked: a constant may be infinite, and statistics of
// finite activations are finite.
std::string find_diverged(const Variables& trained, const Snapshot& snapshot) {
  for (const auto& variable : trained) {
    const Tensor* values = snapshot.find(*variable);
    if (values != nullptr && !is_finite(*values)) return variable->name();
  }
  return "";
}

}  // namespace

bool has_diverged(const Training& training) {
  const Logs logs = training.logs();
  const auto loss = logs.find("loss");
  return loss != logs.end() && !std::isfinite(loss->second);
}

std::optional<Snapshot> SaveGuard::accept(Training& training,
                                          const std::function<Snapshot()>& take) {
  const Model& model = training.model();
  Workers& workers = model.strategy().workers();
  std::optional<Snapshot> snapshot;
  std::string what = "the loss";
  if (!has_diverged(training)) {
    snapshot.emplace(take());
    // It names the callback, for which another worker may have another one.
    what = from_chief(workers, str("whether what ", callback_, " saves are numbers"),
                      [&] { return find_diverged(model.trainable_variables(), *snapshot); });
  }
  const bool is_first = !std::exchange(rejected_, !what.empty());
  if (!rejected_) return snapshot;
  if (is_first && workers.is_chief())
    print_notice(str("warning: ", callback_, " does not save ", moment(training), ": ", what,
                     " is not a finite number any more\n"));
  return std::nullopt;
}

}  // namespace cohort::callbacks
