#pragma once

#include "core/distribute/strategy.h"
#include "core/optim/optimizer.h"

// The moving averages of variables (EmaOptions). Internal to core/optim.
namespace cohort::optim {

// kInvalidArgument for numbers out of range, naming the option.
void check_ema(const EmaOptions& options);

// kUnimplemented where updates are made elsewhere, as by servers.
void require_averages(Strategy& strategy);

// While a step is traced: what the averages of all variables share at an update.
struct EmaStep {
  Value momentum;    // float64: 0 at the first update
  Value overwrites;  // bool, whether variables become their averages; none: never
};
// `number` is that of the update, from 1, float64.
EmaStep ema_step(const EmaOptions& options, const Value& number);

// An average of the variable that has seen no update: its value. kUnimplemented where replicas have
// values of their own.
std::shared_ptr<Variable> make_average(Variable& variable, const std::string& name);

}  // namespace cohort::optim
