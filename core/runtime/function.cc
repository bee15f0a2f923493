#include "core/runtime/function.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <thread>

#include "core/base/comma_separated.h"
#include "core/base/notice.h"
#include "core/base/random.h"
#include "core/base/threads.h"
#include "core/collective/reduce_op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/shared_variables.h"
#include "core/runtime/trace.h"
#include "core/tensor/specs_of.h"

namespace cohort {
namespace {

bool matches(const Signature& signature, std::span<const Tensor> inputs) {
  return signature.size() == inputs.size() &&
         std::equal(inputs.begin(), inputs.end(), signature.begin(),
                    [](const Tensor& t, const TensorSpec& s) { return t.spec() == s; });
}

// One graph: of which signature, for which group.
struct Trace {
  Signature signature;
  ReplicaGroup group;
  Questions asked;  // none: the other replicas' signatures do not matter
  GraphFunction function;
  // Whether a Barrier was added, at which replicas wait for each other before any of them writes.
  bool waits = false;
  bool is_replaced = false;  // by one that waits
  // What the body recorded, where `function` is another graph: the values that it has kept are of
  // this one.
  std::unique_ptr<Graph> recorded = nullptr;

  // Lets it be of another graph.
  void replace(GraphFunction other) {
    if (!recorded) recorded = std::move(function.graph);
    function = std::move(other);
  }
  bool serves(const ReplicaGroup& wanted) const {
    return !is_replaced && group.strategy == wanted.strategy &&
           group.num_replicas == wanted.num_replicas && group.same_input == wanted.same_input &&
           (asked.empty() || group.signatures == wanted.signatures);
  }
};

// Whether all replicas run one trace.
bool is_alike(const ReplicaGroup& group) {
  return group.num_replicas > 1 && group.signatures.empty();
}

// Tells the passes which sums are of replicas that all run this very function.
GraphFunction with_alike_sums(const GraphFunction& function) {
  Rewriter rewrite(function);
  for (const auto& node : function.graph->nodes()) {
    Attributes attributes = node->attributes();
    if (is_start(*node) && !attributes.get<bool>("conditional"))
      attributes.set("adds_alike",
                     attributes.get<int64_t>("op") == static_cast<int64_t>(ReduceOp::kSum));
    rewrite.copy(*node, std::move(attributes));
  }
  return rewrite.finish();
}

bool is_outside(const PlanOptions& options, const ReplicaGroup& group) {
  return options.outside && group.strategy == 0 && group.num_replicas == 1;
}

PlanOptions with_group(PlanOptions options, const ReplicaGroup& group) {
  options.outside = is_outside(options, group);
  return options;
}

// One compiled plan, run by one thread at a time.
struct Specialisation {
  const Trace* trace;
  PlanOptions options;
  bool shares;  // writes memory of several replicas, who divide the work if all run this trace
  bool alike;   // for groups of which they do
  int limit;    // of teams where it was made
  Plan plan;
  std::mutex running;

  Specialisation(const Trace& of, const PlanOptions& wanted, const ReplicaGroup& group)
      : trace(&of),
        options(with_group(wanted, group)),
        shares(writes_shared_variables(of.function)),
        alike(is_alike(group)),
        limit(largest_team()),
        plan(shares && alike ? Plan(with_alike_sums(of.function), options)
                             : Plan(of.function, options)) {}

  bool serves(std::span<const Tensor> inputs, const PlanOptions& wanted,
              const ReplicaGroup& group) const {
    return options.device == wanted.device && options.local_replica == wanted.local_replica &&
           options.precision == wanted.precision && options.optimize == wanted.optimize &&
           options.threads == wanted.threads && options.outside == is_outside(wanted, group) &&
           limit == largest_team() && (!shares || alike == is_alike(group)) &&
           matches(trace->signature, inputs) && trace->serves(group);
  }
};

// A trace, or the error that ended it.
struct Attempt {
  Trace trace;
  std::exception_ptr error;
};

// From so many graphs on a function is likely to be called with ever new shapes.
constexpr int kManyTraces = 32;

std::string to_string(const Signature& signature) { return "(" + comma_separated(signature) + ")"; }

// Throws unless the replicas that `a` and `b` are for make the same calls and write the same
// variables, in the same order.
void require_alike(const std::string& name, const Trace& a, const Trace& b) {
  const std::string difference = difference_of_effects(
      str("the one with inputs ", to_string(a.signature)), common_effects(*a.function.graph),
      str("the one with ", to_string(b.signature)), common_effects(*b.function.graph));
  if (!difference.empty())
    invalid("function \"", name,
            "\": replicas must communicate alike and write the same variables, but ", difference);
}

// One of a group's traces that waits, or null.
const Trace* find_waiting(const std::vector<Trace*>& all) {
  const auto found = std::find_if(all.begin(), all.end(), [](auto* trace) { return trace->waits; });
  return found == all.end() ? nullptr : *found;
}

// The same, but that it waits as `other` does: what is not kept equal may be written by some
// replicas alone.
Trace waiting(const Trace& trace, const Trace& other) {
  return {trace.signature, trace.group, trace.asked, meet_as(other.function, trace.function),
          /*waits=*/true};
}

}  // namespace

struct Function::State {
  const uint64_t id = next_id++;
  Body body;
  std::string name;
  std::atomic<int64_t> calls = 0;
  std::atomic<int> trace_count = 0;
  std::atomic<std::thread::id> tracing;  // the thread that is inside the body
  std::mutex mutex;                      // guards what follows; held while it traces and compiles
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<ReplicaGroup> agreed;  // groups of different signatures whose traces are alike
  // Guards what it takes to find a plan, for a moment: no call of a known one waits for a new one.
  // Held besides `mutex` where that changes.
  mutable std::mutex finding;
  std::vector<std::unique_ptr<Specialisation>> specialisations;  // and Trace::is_replaced

  static std::atomic<uint64_t> next_id;

  void require_outside() const {
    if (tracing == std::this_thread::get_id())
      fail(Code::kFailedPrecondition, "function \"", name,
           "\" cannot be called from its own body while it is traced");
  }

  std::unique_lock<std::mutex> lock() {
    require_outside();
    return std::unique_lock(mutex);
  }

  Attempt attempt(const Signature& signature, const ReplicaGroup& group, const Known& known) {
    Attempt result = record(signature, group, known);
    if (result.error) return result;
    GraphFunction& function = result.trace.function;
    const auto& nodes = function.graph->nodes();
    const bool is_alone = group.num_replicas == 1;
    if (is_alone && std::none_of(nodes.begin(), nodes.end(),
                                 [](const auto& node) { return is_barrier(*node); }))
      return result;
    GraphFunction met = is_alone ? drop_barriers(function) : meet_before_writing(function);
    result.trace.waits = met.graph->nodes().size() > nodes.size();
    result.trace.replace(std::move(met));
    return result;
  }

  Attempt record(const Signature& signature, const ReplicaGroup& group, const Known& known) {
    Attempt result{{signature, group, {}, {}}, nullptr};
    GraphFunction& function = result.trace.function;
    const GraphScope graph(*function.graph);
    const TraceScope scope(*function.graph, group, known);
    tracing = std::this_thread::get_id();
    try {
      std::vector<Value> inputs;
      for (size_t i = 0; i < signature.size(); ++i)
        inputs.push_back(function.graph->add_input(str(name, ":", i), signature[i]));
      function.outputs = body(inputs);
      check_outputs(function);
    } catch (...) {
      result.error = std::current_exception();
    }
    tracing = std::thread::id();
    result.trace.asked = scope.asked();
    return result;
  }

  void check_outputs(const GraphFunction& function) const {
    for (size_t i = 0; i < function.outputs.size(); ++i)
      if (!function.outputs[i].is_of(*function.graph))
        invalid("function \"", name, "\": its result ", i, " is not a value that it has computed");
  }

  // What runs while another function is traced does so once.
  void require_no_variables(const GraphFunction& function) const {
    for (const auto& node : function.graph->nodes())
      if (node->resource() != nullptr)
        fail(
            Code::kFailedPrecondition, "function \"", name, "\" uses variable \"",
            node->resource()->name(),
            "\", and would do so once, while the function that calls it is traced, and not when it "
            "runs; call its body there");
  }

  Trace* find(const Signature& signature, const ReplicaGroup& group) const {
    for (const auto& trace : traces)
      if (trace->signature == signature && trace->serves(group)) return trace.get();
    return nullptr;
  }

  const Trace& keep(Trace trace) {
    if (++trace_count == kManyTraces)
      print_notice(str("warning: function \"", name, "\" has been traced ", kManyTraces,
                       " times, last for inputs ", to_string(trace.signature),
                       "; each combination of dtypes and shapes takes time and memory: pad inputs "
                       "to a few shapes\n"));
    return *traces.emplace_back(std::make_unique<Trace>(std::move(trace)));
  }

  void require_values(std::span<const Tensor> inputs) const {
    for (size_t i = 0; i < inputs.size(); ++i)
      if (!inputs[i].defined())
        invalid("function \"", name, "\": input ", i, " has no value; it was never assigned");
  }

  // REQUIRES: mutex held, for this and what follows.
  const Trace& trace(const Signature& signature, const ReplicaGroup& group) {
    if (group.signatures.empty() || std::find(agreed.begin(), agreed.end(), group) != agreed.end())
      return trace_one(signature, group);
    // In the group's order, whichever replica this is: what a body makes in its first call is then
    // the same in every process.
    for (const Signature& each : group.signatures) trace_one(each, group);
    wait_alike(group);
    const Trace& wanted = trace_one(signature, group);
    for (const Signature& other : group.signatures)
      require_alike(name, wanted, trace_one(other, group));
    agreed.push_back(group);
    return wanted;
  }

  // Where some replicas of the group wait for the others, these come too.
  void wait_alike(const ReplicaGroup& group) {
    std::vector<Trace*> all;
    for (const Signature& each : group.signatures)
      if (Trace* const trace = find(each, group);
          std::find(all.begin(), all.end(), trace) == all.end())
        all.push_back(trace);
    const Trace* const other = find_waiting(all);
    for (Trace* const absent : all) {
      if (other == nullptr || absent->waits) continue;
      traces.push_back(std::make_unique<Trace>(waiting(*absent, *other)));
      const std::lock_guard replacing(finding);
      absent->is_replaced = true;
      agreed.clear();  // it may be the one that other groups have agreed on
    }
  }

  const Trace& trace_one(const Signature& signature, const ReplicaGroup& group) {
    if (const Trace* known = find(signature, group)) return *known;
    Attempt first = attempt(signature, group, {});
    if (!group.signatures.empty() && !first.trace.asked.empty()) {
      trace_together(group);
      return *find(signature, group);
    }
    if (first.error) std::rethrow_exception(first.error);
    return keep(std::move(first.trace));
  }

  // Traces every signature of the group until none asks other questions than the time before: what
  // one replica gathers may depend on what it gathered earlier. Each round settles at least the
  // first question that was still open, and only the last round's errors count, because earlier
  // ones may come from guesses.
  void trace_together(const ReplicaGroup& group) {
    Known known;
    for (size_t round = 0, questions = 0; round <= questions + 1; ++round) {
      std::vector<Attempt> all;
      Known asked;
      for (const Signature& signature : group.signatures) {
        if (asked.contains(signature)) continue;
        all.push_back(attempt(signature, group, known));
        asked[signature] = all.back().trace.asked;
        questions = std::max(questions, asked[signature].size());
      }
      if (asked == known) return keep_together(std::move(all));
      known = std::move(asked);
    }
    fail(Code::kFailedPrecondition, "function \"", name,
         "\" asks other questions each time that it is traced with the same inputs");
  }

  void keep_together(std::vector<Attempt> all) {
    for (const Attempt& one : all)
      if (one.error) std::rethrow_exception(one.error);
    std::vector<Trace*> made;
    for (Attempt& one : all) made.push_back(&one.trace);
    const Trace* const other = find_waiting(made);
    for (Trace* const absent : made) {
      if (other == nullptr || absent->waits) continue;
      absent->replace(meet_as(other->function, absent->function));
      absent->waits = true;
    }
    for (const Attempt& one : all) require_alike(name, all[0].trace, one.trace);
    for (const Attempt& one : all)
      if (one.trace.asked.size() != all[0].trace.asked.size())
        invalid("function \"", name,
                "\": replicas must ask about each other alike, but the one with inputs ",
                to_string(all[0].trace.signature), " does so ", all[0].trace.asked.size(),
                " times and the one with ", to_string(one.trace.signature), " ",
                one.trace.asked.size());
    for (Attempt& one : all) keep(std::move(one.trace));
  }

  // The plan for a call, or null where there is none yet.
  Specialisation* find_plan(std::span<const Tensor> inputs, const PlanOptions& options,
                            const ReplicaGroup& group) const {
    const std::lock_guard guard(finding);
    for (const auto& known : specialisations)
      if (known->serves(inputs, options, group)) return known.get();
    return nullptr;
  }

  // Without `mutex`.
  Specialisation& specialisation(std::span<const Tensor> inputs, const PlanOptions& options,
                                 const ReplicaGroup& group) {
    require_outside();
    if (Specialisation* const known = find_plan(inputs, options, group)) return *known;
    const auto guard = lock();
    // Another thread may have made it meanwhile.
    if (Specialisation* const known = find_plan(inputs, options, group)) return *known;
    auto made = std::make_unique<Specialisation>(trace(specs_of(inputs), group), options, group);
    const std::lock_guard adding(finding);
    return *specialisations.emplace_back(std::move(made));
  }

  FunctionMemory memory() const {
    const std::lock_guard guard(finding);
    FunctionMemory all;
    for (const auto& each : specialisations) {
      const PlanStats& stats = each->plan.stats();
      all += {1, stats.arena_bytes + stats.bucket_bytes + stats.scratch_bytes};
    }
    return all;
  }
};

std::atomic<uint64_t> Function::State::next_id = 1;

Function::Function(Body body, std::string name) : state_(std::make_shared<State>()) {
  internal::check_body(name, body != nullptr);
  state_->body = std::move(body);
  state_->name = std::move(name);
}

std::vector<Tensor> Function::operator()(const std::vector<Tensor>& inputs) const {
  return run(inputs, PlanOptions{}, StepInfo{.seed = global_seed(), .step = state_->calls++});
}

std::vector<Tensor> Function::run(std::span<const Tensor> inputs, const PlanOptions& replica,
                                  const StepInfo& info, const ReplicaGroup& group) const {
  state_->require_values(inputs);
  Specialisation& chosen = state_->specialisation(inputs, replica, group);
  if (has_current_graph()) state_->require_no_variables(chosen.trace->function);
  const std::lock_guard one_at_a_time(chosen.running);
  return chosen.plan.run(inputs, info);
}

const GraphFunction& Function::trace(const Signature& signature, const ReplicaGroup& group) const {
  const auto guard = state_->lock();
  return state_->trace(signature, group).function;
}

int Function::trace_count() const { return state_->trace_count; }

FunctionMemory Function::memory() const { return state_->memory(); }

const std::string& Function::name() const { return state_->name; }

uint64_t Function::id() const { return state_->id; }

namespace internal {

void check_body(const std::string& name, bool given) {
  if (!given) invalid("function \"", name, "\": its body is empty");
}

void check_arity(const std::string& name, size_t wanted, size_t given) {
  if (wanted != given) invalid("function \"", name, "\" takes ", wanted, " inputs, got ", given);
}

}  // namespace internal
}  // namespace cohort
