#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/optim/rules.h"

namespace cohort::optim {
namespace {

class AdagradRule final : public UpdateRule {
 public:
  explicit AdagradRule(const AdagradOptions& options)
      : initial_(options.initial_accumulator_value), epsilon_(options.epsilon) {}

  std::vector<Slot> slots() const override { return {{"accumulator", initial_}}; }
  std::vector<Value> scalars(const Value& learning_rate, const Value&) const override {
    return {learning_rate};
  }
  bool row_wise() const override { return true; }

  Value update(const Value& w, const Value& g, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    Value& accumulator = slots[0];
    accumulator = accumulator + ops::square(g);
    return w - g * scalars[0] / ops::sqrt(accumulator + epsilon_);
  }

 private:
  double initial_, epsilon_;
};

}  // namespace

Optimizer Adagrad(LearningRate learning_rate, const AdagradOptions& options) {
  check_not_negative("Adagrad", "initial_accumulator_value", options.initial_accumulator_value);
  check_not_negative("Adagrad", "epsilon", options.epsilon);
  return make_optimizer(std::make_shared<AdagradRule>(options), std::move(learning_rate), options);
}

}  // namespace cohort::optim
