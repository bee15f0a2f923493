#include "core/train/callbacks/monitor.h"

#include <algorithm>
#include <cmath>

namespace cohort::callbacks {
namespace {

bool higher_is_better(const std::string& name, Mode mode) {
  if (mode != Mode::kAuto) return mode == Mode::kMax;
  constexpr std::string_view kRising[] = {"acc", "accuracy", "auc", "precision", "recall"};
  return std::ranges::any_of(kRising, [&](std::string_view end) { return name.ends_with(end); });
}

}  // namespace

Monitor::Monitor(std::string name, Mode mode, double min_delta)
    : name_(std::move(name)),
      higher_is_better_(higher_is_better(name_, mode)),
      min_delta_(std::abs(min_delta)) {}

std::optional<double> Monitor::find(const Training& training, const Logs& logs) const {
  if (const auto found = logs.find(name_); found != logs.end()) return found->second;
  const bool unvalidated =
      logs.count("val_loss") == 0 && training.options().validation_data.has_value();
  if (unvalidated && name_.starts_with("val_")) return std::nullopt;
  std::string names;
  for (const auto& [name, value] : logs) names += (names.empty() ? "" : ", ") + name;
  invalid("there is no result \"", name_, "\" to monitor; there are: ", names);
}

bool Monitor::improves(double value) {
  if (std::isnan(value)) return false;
  const bool better =
      !best_ || (higher_is_better_ ? value - min_delta_ > *best_ : value + min_delta_ < *best_);
  if (better) best_ = value;
  return better;
}

}  // namespace cohort::callbacks
