#include "core/runtime/plan.h"

#include <algorithm>
#include <cstring>

#include "core/base/threads.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/runtime/layout.h"
#include "core/runtime/profiler.h"
#include "core/runtime/variable.h"

namespace cohort {
namespace {

// The output of a kernel that writes a variable is the variable's memory.
KernelSpec spec_of(const Node& node, Device device, int threads) {
  std::vector<TensorSpec> inputs, outputs = node.outputs();
  for (const Value& input : node.inputs()) inputs.push_back(input.spec());
  if (node.resource() != nullptr) outputs = {node.resource()->spec()};
  return {node.op().name, std::move(inputs), std::move(outputs), node.attributes(), device,
          threads};
}

// Reads, feeds and constants are memory that exists already; aliases are their input's memory.
bool needs_kernel(const Node& node) {
  return !is_alias(node) && !is_read(node) && node.op().name != "Input" &&
         node.op().name != "Constant";
}

std::vector<Tensor> evaluate(const Node& node, const std::vector<Tensor>& inputs) {
  if (is_alias(node)) return {inputs[0].reshape(node.outputs()[0].shape)};
  const auto kernel = make_kernel(spec_of(node, Device{}, device_threads(Device{})));
  std::vector<Tensor> outputs;
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (const Tensor& t : inputs) sources.push_back(t.raw());
  for (const TensorSpec& spec : node.outputs()) {
    outputs.emplace_back(spec.dtype, spec.shape);
    targets.push_back(outputs.back().raw());
  }
  const auto scratch = allocate_host_buffer(kernel->scratch_bytes());
  const StepInfo step;
  kernel->run({sources, targets, scratch->data, step});
  return outputs;
}

GraphFunction transform(const GraphFunction& traced, const PlanOptions& options) {
  const auto writes = [&](const Resource& resource) {
    const auto* variable = dynamic_cast<const Variable*>(&resource);
    return variable == nullptr || variable->is_written_by(options.local_replica);
  };
  GraphFunction function = copy_outlived_reads(simplify(schedule_collectives(traced), evaluate));
  function = prune_writes(function, writes);
  if (options.precision == Precision::kMixedBFloat16) function = lower_precision(function);
  if (!options.optimize) return function;
  function = fuse_batch_norm_activation(fuse_bias_activation(function));
  return fuse_updates(fuse_elementwise(function));
}

// One kernel with its pointers; feeds are filled in at each run.
struct Step {
  const Node* node;
  std::unique_ptr<Kernel> kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// Input `slot` of step `step` is feed `feed`.
struct FeedUse {
  size_t step;
  size_t slot;
  size_t feed;
};

}  // namespace

struct Plan::Impl {
  PlanOptions options;
  GraphFunction function;
  int threads = 1;
  std::vector<Step> steps;
  std::vector<FeedUse> feed_uses;
  std::map<Value, Location> locations;
  std::vector<Tensor> variables;  // keeps the storage that pointers refer to
  std::map<const Resource*, void*> storage;
  std::shared_ptr<Buffer> arena, buckets;
  void* scratch = nullptr;
  std::vector<Tensor> held;  // outputs of the last run, taken again when the caller let go of them
  PlanStats stats;

  void compile(const GraphFunction& traced) {
    threads = options.threads > 0 ? options.threads : device_threads(options.device);
    set_num_threads(threads);
    function = transform(traced, options);
    std::vector<ScheduledKernel> schedule;
    for (const auto& node : function.graph->nodes())
      if (needs_kernel(*node)) schedule.push_back({node.get(), prepare(*node)});
    Layout layout = make_layout(function, schedule,
                                options.bucket_memory ? BucketMemory::kOwn : BucketMemory::kArena);
    locations = std::move(layout.locations);
    for (ScheduledKernel& item : schedule) {
      stats.scratch_bytes = std::max(stats.scratch_bytes, item.kernel->scratch_bytes());
      if (std::find(layout.elided.begin(), layout.elided.end(), item.node) == layout.elided.end())
        steps.push_back({item.node, std::move(item.kernel), {}, {}});
    }
    stats.kernels = static_cast<int>(steps.size());
    stats.arena_bytes = layout.arena_bytes;
    stats.bucket_bytes = layout.bucket_bytes;
    stats.unshared_bytes = layout.unshared_bytes;
    bind();
  }

  std::unique_ptr<Kernel> prepare(const Node& node) const {
    try {
      return make_kernel(spec_of(node, options.device, threads));
    } catch (const Error& error) {
      throw error.with_context(node.name());
    }
  }

  void bind() {
    arena = device_backend(options.device.type)
                .allocate(options.device, stats.arena_bytes + stats.scratch_bytes);
    scratch = static_cast<char*>(arena->data) + stats.arena_bytes;
    if (stats.bucket_bytes > 0) buckets = options.bucket_memory(stats.bucket_bytes);
    for (size_t s = 0; s < steps.size(); ++s) {
      Step& step = steps[s];
      const auto& inputs = step.node->inputs();
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Location& place = locations.at(inputs[i]);
        if (place.kind == Location::Kind::kFeed) feed_uses.push_back({s, i, place.index});
        step.inputs.push_back(address(place));
      }
      if (step.node->resource() != nullptr) {
        step.outputs.push_back(variable_storage(step.node->resource()));
        continue;
      }
      for (size_t i = 0; i < step.node->outputs().size(); ++i)
        step.outputs.push_back(
            address(locations.at(Value(const_cast<Node*>(step.node), static_cast<int>(i)))));
    }
  }

  // Null for feeds.
  void* address(const Location& place) {
    switch (place.kind) {
      case Location::Kind::kArena:
        return static_cast<char*>(arena->data) + place.offset;
      case Location::Kind::kBuckets:
        return static_cast<char*>(buckets->data) + place.offset;
      case Location::Kind::kVariable:
        return variable_storage(place.variable);
      case Location::Kind::kConstant:
        return const_cast<void*>(place.constant->raw());
      case Location::Kind::kFeed:
        return nullptr;
    }
    return nullptr;
  }

  void* variable_storage(Resource* resource) {
    const auto [it, added] = storage.try_emplace(resource, nullptr);
    if (added) {
      auto* variable = dynamic_cast<Variable*>(resource);
      COHORT_CHECK(variable != nullptr);
      variables.push_back(variable->storage(options.local_replica));
      it->second = variables.back().raw();
    }
    return it->second;
  }

  void check_feeds(std::span<const Tensor> feeds) const {
    const auto& wanted = function.graph->inputs();
    if (feeds.size() != wanted.size())
      invalid("expected ", wanted.size(), " inputs, got ", feeds.size());
    for (size_t i = 0; i < feeds.size(); ++i)
      if (!(feeds[i].spec() == wanted[i].spec()))
        invalid("input ", wanted[i].node().name(), " is ", wanted[i].spec(), ", got ",
                feeds[i].spec());
  }

  void run(std::span<const Tensor> feeds, const StepInfo& info, std::vector<Tensor>& outputs) {
    check_feeds(feeds);
    set_num_threads(threads);
    for (const FeedUse& use : feed_uses) steps[use.step].inputs[use.slot] = feeds[use.feed].raw();
    if (Profiler* profiler = Profiler::active()) {
      run_profiled(*profiler, info);
    } else {
      for (Step& step : steps) run_step(step, info);
    }
    collect(feeds, outputs);
  }

  void run_step(Step& step, const StepInfo& info) const {
    try {
      step.kernel->run({step.inputs, step.outputs, scratch, info});
    } catch (const Error& error) {
      throw error.with_context(step.node->name());
    }
  }

  void run_profiled(Profiler& profiler, const StepInfo& info) {
    for (Step& step : steps) {
      const auto begin = Profiler::Clock::now();
      run_step(step, info);
      profiler.record(step.node->name(), step.node->op().name, info.replica_id, begin,
                      Profiler::Clock::now());
    }
  }

  // Whether nobody else refers to the memory any more. Another thread may have let go of it just
  // now: counting one more owner puts its last access before ours, which reading the count does
  // not.
  static bool is_free(const Tensor& tensor) {
    if (!tensor.defined() || tensor.use_count() > 1) return false;
    [[maybe_unused]] const Tensor owner = tensor;
    return true;
  }

  void collect(std::span<const Tensor> feeds, std::vector<Tensor>& outputs) {
    outputs.resize(function.outputs.size());
    held.resize(function.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value& value = function.outputs[i];
      const Location& place = locations.at(value);
      outputs[i] = Tensor();  // the caller's old result may be the only other owner
      if (!is_free(held[i])) held[i] = Tensor(value.dtype(), value.shape());
      const void* source =
          place.kind == Location::Kind::kFeed ? feeds[place.index].raw() : address(place);
      if (held[i].bytes() > 0)
        device_backend(options.device.type)
            .copy_to_host(options.device, source, held[i].raw(), held[i].bytes());
      outputs[i] = held[i];
    }
  }
};

Plan::Plan(const GraphFunction& function, const PlanOptions& options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->compile(function);
}

Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;

std::vector<Tensor> Plan::run(std::span<const Tensor> feeds, const StepInfo& info) {
  std::vector<Tensor> outputs;
  impl_->run(feeds, info, outputs);
  return outputs;
}

void Plan::run(std::span<const Tensor> feeds, const StepInfo& info, std::vector<Tensor>& outputs) {
  impl_->run(feeds, info, outputs);
}

const PlanStats& Plan::stats() const { return impl_->stats; }

}  // namespace cohort
