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

}  // namespace

bool UpdateRound::fits(const IncomingPush& push) const {
  return gradients_.empty() || rows_[0].has_value() == push.rows.has_value();
}

void UpdateRound::enter(const std::string& task, const std::optional<Mark>& before) {
  tasks_.emplace(task, before);
}

void UpdateRound::add(const IncomingPush& push, Time now) {
  if (push.rows || gradients_.empty()) {
    gradients_.reserve(gradients_.size() + 1);
    rows_.push_back(push.rows);
    gradients_.push_back(push.gradient);
  } else {
    add_to(gradients_[0], push.gradient);
  }
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
    std::vector<RowGradient> all;
    for (size_t i = 0; i < gradients_.size(); ++i) all.push_back({*rows_[i], gradients_[i]});
    if (last != nullptr) all.push_back({*last->rows, last->gradient});
    RowGradient combined = combine_rows(all);
    sum.rows = std::move(combined.rows);
    sum.values = std::move(combined.values);
  } else if (last == nullptr) {
    sum.values = gradients_[0].clone();
  } else {
    sum.values = last->gradient;
    if (!gradients_.empty()) add_to(sum.values, gradients_[0]);
  }
  // Workers have divided their gradients by as many as there were to be.
  if (size() < wanted) scale(sum.values, static_cast<double>(wanted) / size());
  return sum;
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
