#include "core/train/callbacks/monitor.h"

#include <algorithm>
#include <cmath>

#include "core/base/comma_separated.h"
#include "core/base/notice.h"

namespace cohort::callbacks {
namespace {

constexpr const char* kBest = "best";

metrics::Direction direction_of(const std::string& result, const Training& training) {
  using metrics::Direction;
  for (const metrics::Metric& metric : training.metrics())
    if ((result == metric.name() || result == str(kValidationPrefix, metric.name())) &&
        metric.direction() != Direction::kUnknown)
      return metric.direction();
  if (result.ends_with("loss")) return Direction::kDown;
  constexpr std::string_view kRising[] = {"acc", "accuracy", "auc", "precision", "recall"};
  const auto ends_it = [&](std::string_view end) { return result.ends_with(end); };
  return std::ranges::any_of(kRising, ends_it) ? Direction::kUp : Direction::kUnknown;
}

}  // namespace

void warn_if_missing(Training& training, std::string_view callback, std::string_view result) {
  if (!result.starts_with(kValidationPrefix) || training.options().validation_data ||
      !training.model().strategy().is_chief())
    return;
  print_notice(str("warning: ", callback, " needs \"", result,
                   "\", and fit() has no validation_data: if no callback before it adds this "
                   "result, the first epoch ends with an error\n"));
}

Monitor::Monitor(std::string name, Mode mode, double min_delta, std::optional<double> threshold)
    : name_(std::move(name)), mode_(mode), min_delta_(std::abs(min_delta)), threshold_(threshold) {
  if (!std::isfinite(min_delta))
    invalid("min_delta, by which \"", name_, "\" must become better, must be finite, got ",
            min_delta);
  if (threshold && std::isnan(*threshold))
    invalid("the value that \"", name_, "\" must beat is NaN");
}

void Monitor::begin(const Training& training, std::string_view callback) {
  if (mode_ != Mode::kAuto) return;
  const auto direction = direction_of(name_, training);
  if (direction == metrics::Direction::kUnknown)
    invalid(callback, ": whether higher or lower values of \"", name_,
            "\" are better is not known: give .mode = Mode::kMax or Mode::kMin, or the metric a "
            "direction");
  mode_ = direction == metrics::Direction::kUp ? Mode::kMax : Mode::kMin;
}

std::optional<double> Monitor::find(const Training& training, const Logs& logs) const {
  if (const auto found = logs.find(name_); found != logs.end()) return found->second;
  const bool unvalidated = logs.count(str(kValidationPrefix, "loss")) == 0 &&
                           training.options().validation_data.has_value();
  const bool is_of_validation = name_.starts_with(kValidationPrefix);
  if (is_of_validation ? unvalidated : training.examples() == 0) return std::nullopt;
  invalid("there is no result \"", name_,
          "\" to monitor; there are: ", comma_separated(logs, &Logs::value_type::first));
}

bool Monitor::beats(double value, double other) const {
  return mode_ == Mode::kMax ? value - min_delta_ > other : value + min_delta_ < other;
}

bool Monitor::is_better(double value) const {
  const auto other = best_ ? best_ : threshold_;
  return other ? beats(value, *other) : !std::isnan(value);
}

bool Monitor::improves(double value) {
  const bool better = is_better(value);
  if (better) best_ = value;
  return better;
}

CallbackState Monitor::state() const {
  return best_ ? CallbackState{{kBest, Tensor::scalar(*best_)}} : CallbackState();
}

void Monitor::restore(const CallbackState& state) { best_ = number_in(state, kBest); }

}  // namespace cohort::callbacks
