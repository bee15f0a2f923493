#include <cmath>

#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/optim/rules.h"

namespace cohort::optim {
namespace {

// 1 - beta^step
Value bias_correction(double beta, const Value& step) {
  return 1.0 - ops::pow(ops::constant(beta, DType::kFloat64), step);
}

// The running means of the gradient and of its square.
void move_moments(const Value& g, double beta_1, double beta_2, std::vector<Value>& slots) {
  slots[0] = slots[0] + (g - slots[0]) * (1 - beta_1);
  slots[1] = slots[1] + (ops::square(g) - slots[1]) * (1 - beta_2);
}

class AdamRule final : public UpdateRule {
 public:
  explicit AdamRule(const AdamOptions& options) : options_(options) {}

  std::vector<Slot> slots() const override {
    std::vector<Slot> slots = {{"momentum"}, {"velocity"}};
    if (options_.amsgrad) slots.push_back({"velocity_hat"});
    return slots;
  }

  std::vector<Value> scalars(const Value& learning_rate, const Value& step) const override {
    return {learning_rate * ops::sqrt(bias_correction(options_.beta_2, step)) /
            bias_correction(options_.beta_1, step)};
  }
  bool row_wise() const override { return options_.lazy; }

  Value update(const Value& w, const Value& g, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    move_moments(g, options_.beta_1, options_.beta_2, slots);
    Value velocity = slots[1];
    if (options_.amsgrad) velocity = slots[2] = ops::maximum(slots[2], velocity);
    return w - slots[0] * scalars[0] / (ops::sqrt(velocity) + options_.epsilon);
  }

 private:
  AdamOptions options_;
};

class LambRule final : public UpdateRule {
 public:
  explicit LambRule(const LambOptions& options) : options_(options) {}

  std::vector<Slot> slots() const override { return {{"momentum"}, {"velocity"}}; }

  std::vector<Value> scalars(const Value& learning_rate, const Value& step) const override {
    return {learning_rate, bias_correction(options_.beta_1, step),
            bias_correction(options_.beta_2, step)};
  }

  Value update(const Value& w, const Value& g, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    move_moments(g, options_.beta_1, options_.beta_2, slots);
    const Value r = slots[0] / scalars[1] / (ops::sqrt(slots[1] / scalars[2]) + options_.epsilon);
    return w - r * (trust_ratio(norm(w), norm(r)) * scalars[0]);
  }

 private:
  static Value norm(const Value& x) { return ops::sqrt(ops::reduce_sum(ops::square(x))); }

  static Value trust_ratio(const Value& of_weight, const Value& of_update) {
    const Value zero = ops::constant(0, of_weight.dtype()),
                one = ops::constant(1, of_weight.dtype());
    const Value known =
        ops::logical_and(ops::greater(of_weight, zero), ops::greater(of_update, zero));
    return ops::where(known, of_weight / of_update, one);
  }

  LambOptions options_;
};

template <typename Options>
void check_moments(const char* optimizer, const Options& options) {
  check_fraction(optimizer, "beta_1", options.beta_1);
  check_fraction(optimizer, "beta_2", options.beta_2);
  check_not_negative(optimizer, "epsilon", options.epsilon);
}

}  // namespace

Optimizer Adam(LearningRate learning_rate, const AdamOptions& options) {
  check_moments("Adam", options);
  return make_optimizer(std::make_shared<AdamRule>(options), std::move(learning_rate), options);
}

Optimizer AdamW(LearningRate learning_rate, AdamOptions options) {
  constexpr double kDefaultDecay = 0.004;
  if (!options.weight_decay.factor) options.weight_decay.factor = kDefaultDecay;
  return Adam(std::move(learning_rate), options);
}

Optimizer Lamb(LearningRate learning_rate, const LambOptions& options) {
  check_moments("Lamb", options);
  return make_optimizer(std::make_shared<LambRule>(options), std::move(learning_rate), options);
}

}  // namespace cohort::optim
