#include "strategies/parameter_server/update_round.h"

#include <algorithm>
#include <span>
#include <type_traits>
#include <utility>

#include "strategies/parameter_server/row_gradient.h"
#include "strategies/parameter_server/shard.h"

namespace cohort::parameter_server {
namespace {

// So many updates in a row make a worker one that the others wait for, and not by chance.
constexpr int kUpdatesToJudge = 10;

void scale(Tensor& gradient, double factor) {
  if (!is_floating(gradient.dtype())) return;
  dispatch(FloatTypes{}, gradient.dtype(), "a gradient", [&]<typename T>() {
    using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
    for (T& value : std::span(gradient.data<T>(), static_cast<size_t>(gradient.num_elements())))
      value = T(static_cast<Wide>(value) * static_cast<Wide>(factor));
  });
}

// target = own * target + other * addend, where a factor of 0 leaves out even what is no number.
void add_weighted(Tensor& target, double own, const Tensor& addend, double other) {
  if (!is_floating(target.dtype()) || (own == 1 && other == 1)) return add_to(target, addend);
  dispatch(FloatTypes{}, target.dtype(), "a gradient", [&]<typename T>() {
    using Wide = std::conditional_t<sizeof(T) == 8, double, float>;
    const auto part = [](double factor, T value) {
      return factor == 0 ? Wide{0} : static_cast<Wide>(factor) * static_cast<Wide>(value);
    };
    T* const to = target.data<T>();
    const T* const from = addend.data<T>();
    for (int64_t i = 0; i < target.num_elements(); ++i)
      to[i] = T(part(own, to[i]) + part(other, from[i]));
  });
}

}  // namespace

bool UpdateRound::fits(const IncomingPush& push) const {
  return gradients_.empty() || rows_[0].has_value() == push.rows.has_value();
}

void UpdateRound::enter(const IncomingPush& push, const std::optional<Mark>& before) {
  tasks_.emplace(push.task, before);
  if (push.weight > 0) ++weighing_;
}

void UpdateRound::leave(const IncomingPush& push) {
  tasks_.erase(push.task);
  if (push.weight > 0) --weighing_;
}

// So that the sum is as many times the mean as there are gradients: equal weights leave all as it
// is, and no sum of 16 bits overflows by the numbers of rows.
UpdateRound::Factors UpdateRound::factors(double weight) const {
  const double all = weight_ + weight, count = size();
  if (size() == 1 || all == 0) return {.before = 1, .present = 1};
  return {.before = weight_ * count / ((count - 1) * all), .present = weight * count / all};
}

void UpdateRound::add(const IncomingPush& push, Time now) {
  if (push.rows || gradients_.empty()) {
    gradients_.reserve(gradients_.size() + 1);
    rows_.push_back(push.rows);
    weights_.push_back(push.weight);
    gradients_.push_back(push.gradient);
  } else {
    const auto [before, present] = factors(push.weight);
    add_weighted(gradients_[0], before, push.gradient, present);
  }
  weight_ += push.weight;
  learning_rate_ = push.learning_rate;
  step_ = std::max(step_, push.step);
  latest_ = now;
  if (!began_) began_ = now;
}

AppliedGradient UpdateRound::sum(IncomingPush* last, uint64_t number, int wanted) const {
  AppliedGradient sum{.values = {},
                      .rows = {},
                      .learning_rate = last ? last->learning_rate : learning_rate_,
                      .number = std::max({number, step_, last ? last->step : 0})};
  if (last ? last->rows.has_value() : rows_[0].has_value()) {
    RowGradient rows = combined(last);
    sum.rows = std::move(rows.rows);
    sum.values = std::move(rows.values);
  } else if (last == nullptr) {
    sum.values = gradients_[0].clone();
  } else {
    sum.values = last->gradient;
    const auto [before, present] = factors(last->weight);
    if (!gradients_.empty()) add_weighted(sum.values, present, gradients_[0], before);
  }
  // Workers have divided their gradients by as many as there were to be.
  if (size() != wanted) scale(sum.values, static_cast<double>(wanted) / size());
  return sum;
}

RowGradient UpdateRound::combined(const IncomingPush* last) const {
  const double all = weight_ + (last ? last->weight : 0);
  std::vector<RowGradient> parts;
  const auto take = [&](const std::vector<int64_t>& rows, const Tensor& values, double weight) {
    const double factor = all == 0 || !is_floating(values.dtype()) ? 1 : weight * size() / all;
    // A row without a gradient is not to be moved by a rule that goes on from the last ones.
    if (factor == 0) return;
    parts.push_back({rows, factor == 1 ? values : values.clone()});
    if (factor != 1) scale(parts.back().values, factor);
  };
  for (size_t i = 0; i < gradients_.size(); ++i) take(*rows_[i], gradients_[i], weights_[i]);
  if (last != nullptr) take(*last->rows, last->gradient, last->weight);
  return combine_rows(parts);
}

double LastContributor::count(const std::string& task, Time::duration alone) {
  const auto now = std::chrono::steady_clock::now();
  if (task_ != task || updates_ == kUpdatesToJudge) {
    task_ = task;
    updates_ = 0;
    since_ = now;
    alone_ = Time::duration(0);
  } else {
    alone_ += alone;
  }
  if (++updates_ < kUpdatesToJudge) return 0;
  return std::chrono::duration<double>(alone_) / std::chrono::duration<double>(now - since_);
}

}  // namespace cohort::parameter_server
