#include "core/runtime/function.h"

#include <atomic>

namespace cohort {
namespace {

using Signature = std::vector<TensorSpec>;

struct SignatureLess {
  static auto key(const TensorSpec& s) { return std::pair(s.dtype, s.shape.to_vector()); }
  bool operator()(const Signature& a, const Signature& b) const {
    return std::lexicographical_compare(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const TensorSpec& x, const TensorSpec& y) { return key(x) < key(y); });
  }
};

bool matches(const Signature& signature, std::span<const Tensor> inputs) {
  return signature.size() == inputs.size() &&
         std::equal(inputs.begin(), inputs.end(), signature.begin(),
                    [](const Tensor& t, const TensorSpec& s) { return t.spec() == s; });
}

// One compiled plan: of which signature, for which replica.
struct Specialisation {
  Signature signature;
  PlanOptions options;
  std::unique_ptr<Plan> plan;

  bool serves(std::span<const Tensor> inputs, const PlanOptions& wanted) const {
    return options.device == wanted.device && options.local_replica == wanted.local_replica &&
           options.precision == wanted.precision && options.optimize == wanted.optimize &&
           matches(signature, inputs);
  }
};

}  // namespace

struct Function::State {
  Body body;
  std::string name;
  std::atomic<int64_t> calls = 0;
  std::mutex mutex;  // guards the two caches; plans themselves run outside it
  std::map<Signature, GraphFunction, SignatureLess> traces;
  std::vector<std::unique_ptr<Specialisation>> specialisations;

  // REQUIRES: mutex held.
  const GraphFunction& trace(const Signature& signature) {
    const auto it = traces.find(signature);
    if (it != traces.end()) return it->second;
    GraphFunction traced;
    const GraphScope scope(*traced.graph);
    std::vector<Value> inputs;
    for (size_t i = 0; i < signature.size(); ++i)
      inputs.push_back(traced.graph->add_input(str(name, ":", i), signature[i]));
    traced.outputs = body(inputs);
    return traces.emplace(signature, std::move(traced)).first->second;
  }

  Plan& plan(std::span<const Tensor> inputs, const PlanOptions& options) {
    const std::lock_guard lock(mutex);
    for (const auto& s : specialisations)
      if (s->serves(inputs, options)) return *s->plan;
    Signature signature;
    for (const Tensor& t : inputs) signature.push_back(t.spec());
    auto plan = std::make_unique<Plan>(trace(signature), options);
    specialisations.push_back(std::make_unique<Specialisation>(
        Specialisation{std::move(signature), options, std::move(plan)}));
    return *specialisations.back()->plan;
  }
};

Function::Function(Body body, std::string name) : state_(std::make_shared<State>()) {
  state_->body = std::move(body);
  state_->name = std::move(name);
}

std::vector<Tensor> Function::operator()(const std::vector<Tensor>& inputs) const {
  return run(inputs, PlanOptions{}, StepInfo{.step = state_->calls++});
}

std::vector<Tensor> Function::run(std::span<const Tensor> inputs, const PlanOptions& replica,
                                  const StepInfo& info) const {
  return state_->plan(inputs, replica).run(inputs, info);
}

const GraphFunction& Function::trace(const std::vector<TensorSpec>& signature) const {
  const std::lock_guard lock(state_->mutex);
  return state_->trace(signature);
}

int Function::trace_count() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int>(state_->traces.size());
}

const std::string& Function::name() const { return state_->name; }

namespace internal {

void check_arity(const std::string& name, size_t wanted, size_t given) {
  if (wanted != given) invalid("function \"", name, "\" takes ", wanted, " inputs, got ", given);
}

}  // namespace internal
}  // namespace cohort
