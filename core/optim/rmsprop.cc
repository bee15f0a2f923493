#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/optim/rules.h"

namespace cohort::optim {
namespace {

class RmspropRule final : public UpdateRule {
 public:
  explicit RmspropRule(const RMSpropOptions& options) : options_(options) {}

  std::vector<Slot> slots() const override {
    std::vector<Slot> slots = {{"velocity"}};
    if (options_.centered) slots.push_back({"average_gradient"});
    if (options_.momentum > 0) slots.push_back({"momentum"});
    return slots;
  }

  std::vector<Value> scalars(const Value& learning_rate, const Value&) const override {
    return {learning_rate};
  }

  Value update(const Value& w, const Value& g, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    Value& velocity = slots[0];
    velocity = moved(velocity, ops::square(g));
    Value spread = velocity;
    if (options_.centered) {
      slots[1] = moved(slots[1], g);
      const Value variance = velocity - ops::square(slots[1]);
      // Rounding makes it negative where gradients hardly vary.
      spread = ops::maximum(variance, ops::constant(0, variance.dtype()));
    }
    const Value step = g * scalars[0] * ops::rsqrt(spread + options_.epsilon);
    if (options_.momentum == 0) return w - step;
    slots.back() = slots.back() * options_.momentum + step;
    return w - slots.back();
  }

 private:
  Value moved(const Value& mean, const Value& x) const {
    return mean * options_.rho + x * (1 - options_.rho);
  }

  RMSpropOptions options_;
};

}  // namespace

Optimizer RMSprop(LearningRate learning_rate, const RMSpropOptions& options) {
  check_fraction("RMSprop", "rho", options.rho);
  check_fraction("RMSprop", "momentum", options.momentum);
  check_not_negative("RMSprop", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<RmspropRule>(options), std::move(learning_rate), options);
}

}  // namespace cohort::optim
