#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/graph/graph_function.h"
#include "core/runtime/plan.h"
#include "core/runtime/replica_group.h"

namespace cohort {

// What the plans of functions hold, for reports. Variables are not in it.
struct FunctionMemory {
  // One for each signature, device, replica, precision and size of a team that has run.
  int plans = 0;
  size_t bytes = 0;  // of their intermediates, buckets and working memory, on all devices

  FunctionMemory& operator+=(const FunctionMemory& other) {
    plans += other.plans;
    bytes += other.bytes;
    return *this;
  }
};

// A C++ function over values, turned into a graph: called once for each new input signature (dtypes
// and shapes) to record nodes, then only the compiled Plan runs. A body that asks for the other
// replicas' shapes (shapes_on_replicas) is called again for each combination of them, as often as
// it takes to answer. The body must depend on nothing but its arguments, captured constants and
// variables, and cannot call the function itself (kFailedPrecondition). What it throws arrives as
// it was thrown. A body over a vector looks at its size itself; that of function(), below, whose
// parameters are single values, is only called with as many. A cheap handle; copies share the
// cache.
//
// Thread-safe. Calls of one signature take turns; those of others go on beside them, also while a
// new one is traced and compiled. Many threads that are to call it at the same time, as those of a
// server, have a Plan of trace() each (docs/functions.md).
//
// Each signature that has been called has a plan, whose memory the function keeps: lengths that are
// ever new add up, and a last batch of fewer rows has a plan of its own.
class Function {
 public:
  using Body = std::function<std::vector<Value>(const std::vector<Value>&)>;

  explicit Function(Body body, std::string name = "function");

  // Runs on cpu:0 as the only replica. Results that the body has not computed are kInvalidArgument.
  // Each call advances the step that keys the random ops. Called while another function is traced,
  // it runs at once, and its results are constants there; if it uses variables, that is
  // kFailedPrecondition.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const;
  // Runs as one replica of `group`, on the calling thread and its team, which in a parallel region
  // of the program is that thread alone; each size of a team has a plan of its own. The step in
  // `info` keys the random ops.
  std::vector<Tensor> run(std::span<const Tensor> inputs, const PlanOptions& replica,
                          const StepInfo& info, const ReplicaGroup& group = {}) const;

  // The graph for a signature, traced on first use. Where the group's replicas have different
  // signatures, all of them are traced, and kInvalidArgument says so when they do not communicate
  // alike, which would have them wait for each other for ever, or not write the same variables,
  // whose copies would differ.
  const GraphFunction& trace(const Signature& signature, const ReplicaGroup& group = {}) const;
  // How many graphs there are: one for each signature and strategy. A notice (core/base/notice.h)
  // tells once of a function that has many, as where each batch has another shape.
  int trace_count() const;
  // What its plans hold by now.
  FunctionMemory memory() const;
  const std::string& name() const;
  // Which function of this process it is: a number that copies share, and that no other ever has.
  uint64_t id() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Wraps a lambda over single values: function([](Value x, Value y) { return x * y; }); or another
// object with one call operator, which is no template, or a pointer to a function. It may return
// one Value or a vector of them. Another number of inputs is kInvalidArgument.
template <typename F>
Function function(F f, std::string name = "function");

// --- implementation ---

namespace internal {

// The number of parameters of a function, or of an object's only call operator; -1 where there is
// no telling.
template <typename F>
struct Arity {
  static constexpr int value = -1;
};
template <typename F>
requires requires { &F::operator(); }
struct Arity<F> : Arity<decltype(&F::operator())> {};
template <typename R, typename... Args>
struct Arity<R (*)(Args...)> {
  static constexpr int value = static_cast<int>(sizeof...(Args));
};
template <typename R, typename... Args>
struct Arity<R (*)(Args...) noexcept> : Arity<R (*)(Args...)> {};
template <typename F, typename R, typename... Args>
struct Arity<R (F::*)(Args...)> : Arity<R (*)(Args...)> {};
template <typename F, typename R, typename... Args>
struct Arity<R (F::*)(Args...) const> : Arity<R (*)(Args...)> {};
template <typename F, typename R, typename... Args>
struct Arity<R (F::*)(Args...) noexcept> : Arity<R (*)(Args...)> {};
template <typename F, typename R, typename... Args>
struct Arity<R (F::*)(Args...) const noexcept> : Arity<R (*)(Args...)> {};

void check_arity(const std::string& name, size_t wanted, size_t given);
void check_body(const std::string& name, bool given);

// kInvalidArgument for an empty std::function, or a null pointer.
template <typename F>
F checked_body(F body, const std::string& name) {
  if constexpr (std::is_constructible_v<F, std::nullptr_t>) check_body(name, body != nullptr);
  return body;
}

template <typename F, size_t... I>
std::vector<Value> call(F& f, const std::vector<Value>& inputs, std::index_sequence<I...>) {
  if constexpr (std::is_same_v<decltype(f(inputs[I]...)), Value>) {
    return {f(inputs[I]...)};
  } else {
    return f(inputs[I]...);
  }
}

}  // namespace internal

template <typename F>
Function function(F f, std::string name) {
  if constexpr (std::is_invocable_v<F, const std::vector<Value>&>) {
    return Function(Function::Body(std::move(f)), std::move(name));
  } else {
    constexpr int arity = internal::Arity<F>::value;
    static_assert(
        arity >= 0,
        "function() takes a lambda, or a pointer to a function, whose parameters are Values "
        "or one std::vector<Value>, none of them auto");
    constexpr auto n = static_cast<size_t>(std::max(arity, 0));
    auto body = [f = internal::checked_body(std::move(f), name),
                 name](const std::vector<Value>& inputs) mutable {
      internal::check_arity(name, n, inputs.size());
      return internal::call(f, inputs, std::make_index_sequence<n>());
    };
    return Function(std::move(body), name);
  }
}

}  // namespace cohort
