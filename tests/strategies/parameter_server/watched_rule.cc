#include "tests/strategies/parameter_server/watched_rule.h"

#include <cstring>
#include <mutex>
#include <utility>

#include "core/base/error.h"
#include "core/graph/op.h"
#include "core/kernels/kernel.h"
#include "core/ops/math_ops.h"

namespace cohort::testing {
namespace {

struct Watch {
  std::mutex mutex;
  std::function<void()> call;
};

Watch& the_watch() {
  static Watch watch;
  return watch;
}

void watch_update(const KernelCall& call, const KernelContext& context) {
  std::function<void()> told;
  {
    const std::lock_guard lock(the_watch().mutex);
    told = the_watch().call;
  }
  if (told) told();
  std::memcpy(context.outputs[0], context.inputs[0], call.input_specs[0].bytes());
}

COHORT_REGISTER_OP({.name = "TestWatchUpdate",
                    .num_inputs = 1,
                    .infer = [](const InferenceContext& c) { return c.inputs; },
                    .gradient = no_gradient});
COHORT_REGISTER_KERNEL("TestWatchUpdate", kCpu, stateless_kernel(watch_update));

}  // namespace

std::vector<Value> WatchedRule::scalars(const Value& learning_rate, const Value& /*step*/) const {
  return {learning_rate};
}

Value WatchedRule::update(const Value& variable, const Value& gradient,
                          std::vector<Value>& /*slots*/, const std::vector<Value>& scalars) const {
  return variable - gradient.graph().add("TestWatchUpdate", {gradient}).output() * scalars[0];
}

UpdateWatch::UpdateWatch(std::function<void()> f) {
  const std::lock_guard lock(the_watch().mutex);
  COHORT_CHECK(!the_watch().call);
  the_watch().call = std::move(f);
}

UpdateWatch::~UpdateWatch() {
  const std::lock_guard lock(the_watch().mutex);
  the_watch().call = nullptr;
}

}  // namespace cohort::testing
