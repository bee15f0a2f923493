#include "core/ops/math_ops.h"
#include "core/optim/optimizers.h"
#include "core/optim/rules.h"

namespace cohort::optim {
namespace {

class SgdRule final : public UpdateRule {
 public:
  explicit SgdRule(const SGDOptions& options)
      : momentum_(options.momentum), nesterov_(options.nesterov) {}

  std::vector<Slot> slots() const override {
    return row_wise() ? std::vector<Slot>{} : std::vector<Slot>{{"momentum"}};
  }
  std::vector<Value> scalars(const Value& learning_rate, const Value&) const override {
    return {learning_rate};
  }
  bool row_wise() const override { return momentum_ == 0; }

  Value update(const Value& w, const Value& g, std::vector<Value>& slots,
               const std::vector<Value>& scalars) const override {
    const Value step = g * scalars[0];
    if (row_wise()) return w - step;
    Value& momentum = slots[0];
    momentum = momentum * momentum_ - step;
    return nesterov_ ? w + (momentum * momentum_ - step) : w + momentum;
  }

 private:
  double momentum_;
  bool nesterov_;
};

}  // namespace

Optimizer SGD(LearningRate learning_rate, const SGDOptions& options) {
  if (!(options.momentum >= 0 && options.momentum <= 1))
    invalid("SGD: momentum must be in [0, 1], got ", options.momentum);
  return make_optimizer(std::make_shared<SgdRule>(options), std::move(learning_rate), options);
}

}  // namespace cohort::optim
