#include "core/optim/ema.h"

#include "core/ops/math_ops.h"
#include "core/optim/rules.h"
#include "core/runtime/variable_memory.h"

namespace cohort::optim {
namespace {

// As Variable::value(), but also while a function is traced: a variable that is first trained after
// others were begins with what it is then.
Tensor value_now(Variable& variable) {
  Tensor copy(variable.spec().dtype, variable.spec().shape);
  copy_between_devices(variable.devices().front(), variable.storage_outside(0).raw(), Device{},
                       copy.raw(), copy.bytes());
  return copy;
}

}  // namespace

void check_ema(const EmaOptions& options) {
  check_fraction("ema", "momentum", options.momentum);
  if (options.overwrite_frequency && *options.overwrite_frequency < 1)
    invalid("ema: overwrite_frequency must be at least 1, got ", *options.overwrite_frequency);
}

void require_averages(Strategy& strategy) {
  if (strategy.remote_updates() != nullptr)
    fail(Code::kUnimplemented, "ema under ", strategy.name(),
         ": servers make the updates, and keep no averages of what they update");
}

EmaStep ema_step(const EmaOptions& options, const Value& number) {
  const auto constant = [](double value) { return ops::constant(value, DType::kFloat64); };
  EmaStep step;
  step.momentum =
      ops::where(ops::equal(number, constant(1)), constant(0), constant(options.momentum));
  if (options.overwrite_frequency) {
    const auto frequency = static_cast<double>(*options.overwrite_frequency);
    step.overwrites = ops::equal(ops::floor(number / frequency) * frequency, number);
  }
  return step;
}

std::shared_ptr<Variable> make_average(Variable& variable, const std::string& name) {
  if (!variable.is_same_on_replicas())
    fail(Code::kUnimplemented, "ema: variable \"", variable.name(),
         "\" has no average, because each replica has a value of its own");
  return create_variable({.name = name,
                          .spec = variable.spec(),
                          .initial_value = [&variable] { return value_now(variable); },
                          .trainable = false,
                          .aggregation = Aggregation::kOnlyFirstReplica});
}

}  // namespace cohort::optim
