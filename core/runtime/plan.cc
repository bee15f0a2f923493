#include "core/runtime/plan.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>

#include "core/base/cancellation.h"
#include "core/base/notice.h"
#include "core/base/threads.h"
#include "core/collective/communicator.h"
#include "core/collective/device_collectives.h"
#include "core/graph/op.h"
#include "core/graph/passes/passes.h"
#include "core/graph/passes/rewriter.h"
#include "core/graph/value_map.h"
#include "core/kernels/common/host_kernel.h"
#include "core/kernels/common/scratch.h"
#include "core/runtime/device_io.h"
#include "core/runtime/device_times.h"
#include "core/runtime/layout.h"
#include "core/runtime/merged_variable.h"
#include "core/runtime/part_kernel.h"
#include "core/runtime/profiler.h"
#include "core/runtime/shared_variables.h"
#include "core/runtime/variable.h"
#include "core/runtime/variable_memory.h"
#include "core/tensor/specs_of.h"

namespace cohort {
namespace {

// The output of a kernel that writes a variable is the variable's memory.
KernelSpec spec_of(const Node& node, Device device, int threads) {
  std::vector<TensorSpec> outputs = node.outputs();
  if (node.resource() != nullptr) outputs = {node.resource()->spec()};
  return {node.op().name, specs_of(node.inputs()), std::move(outputs), node.attributes(), device,
          threads};
}

// Reads, feeds and constants are memory that exists already; aliases are their input's memory.
bool needs_kernel(const Node& node) {
  return !is_alias(node) && !is_read(node) && node.op().name != "Input" &&
         node.op().name != "Constant";
}

std::vector<Tensor> evaluate(const Node& node, const std::vector<Tensor>& inputs) {
  if (is_alias(node)) return {inputs[0].reshape(node.outputs()[0].shape)};
  const auto kernel = make_kernel(spec_of(node, Device{}, num_threads()));
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

GraphFunction fuse(const GraphFunction& function) {
  return fuse_updates(fuse_elementwise(fuse_batch_norm_activation(fuse_bias_activation(function))));
}

GraphFunction transform(const GraphFunction& traced, const PlanOptions& options) {
  GraphFunction function = options.outside ? schedule_collectives(read_merged_values(traced))
                                           : schedule_collectives(traced);
  function = copy_outlived_reads(simplify(function, evaluate));
  Division division;
  std::set<ReducedValue> factored;
  if (writes_shared_variables(function)) {
    const GraphFunction fused = options.optimize ? fuse(function) : GraphFunction();
    const GraphFunction& whole = options.optimize ? fused : function;
    division = find_division(whole, replicas_sharing);
    factored = find_factored(whole, division);
    check_shared_reads(function, replicas_sharing, division.variables);
  }
  function = prune_writes(function, [&](const Resource& resource) {
    const auto* variable = dynamic_cast<const Variable*>(&resource);
    return variable == nullptr || options.outside || division.variables.count(&resource) > 0 ||
           variable->is_written_by(options.local_replica);
  });
  if (options.precision != Precision::kFloat32)
    function = lower_precision(
        function, operand_dtype(options.precision),
        options.device.type == DeviceType::kGpu ? LoweredFor::kGpu : LoweredFor::kCpu);
  if (options.optimize) function = fuse(function);
  if (!division.variables.empty())
    function =
        divide_updates(function, division, number_among_sharing(function, options.local_replica),
                       replicas_sharing);
  return factored.empty() ? std::move(function) : gather_factors(function, factored);
}

// Null where replicas combine values through the host's memory.
DeviceCollectives* collectives_of(const StepInfo& info) {
  return info.communicator == nullptr ? nullptr : info.communicator->on_device();
}

// Held alone while a stream records, and together with others while kernels are prepared: libraries
// may then wait for the whole device, which fails while one of its streams records, and spoils the
// recording. Who holds it waits for no other replica.
std::shared_mutex recording_mutex;

// One kernel with its pointers; feeds are filled in at each run.
struct Step {
  const Node* node;
  std::unique_ptr<Kernel> kernel;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
};

// Variables between which a Barrier stands: those written before it, since the Barrier before, and
// those read behind it, until the next one.
struct Exchange {
  VariableMemory::Variables written, read;
};

// Input `slot` of step `step` is feed `feed`.
struct FeedUse {
  size_t step;
  size_t slot;
  size_t feed;
};

}  // namespace

struct Plan::Impl {
  explicit Impl(const PlanOptions& options) : options(options), variables(options) {}

  const PlanOptions options;
  GraphFunction function;
  int threads = 1;
  std::vector<Step> steps;
  std::vector<FeedUse> feed_uses;
  ValueMap<Location> locations;
  VariableMemory variables;
  std::map<const Node*, Exchange> exchanges;  // by Barrier, where variables have copies
  VariableMemory::Variables written_last;     // since the last Barrier
  std::shared_ptr<Buffer> arena, buckets;
  void* scratch = nullptr;
  std::vector<const void*> result_sources;  // null for feeds in the host's memory
  std::vector<Tensor> held;  // outputs of the last run, taken again when the caller let go of them
  PlanStats stats;
  // On a device with memory of its own.
  std::optional<DeviceIo> io;
  bool prepared = false;  // all of its kernels have been handed over once
  std::unique_ptr<Recording> recording;

  void compile(const GraphFunction& traced) {
    const int device_limit = device_threads(options.device);
    DeviceBackend& backend = device_backend(options.device.type);
    const bool on_stream = !backend.shares_host_memory();
    // What such a device cannot do yet, the host does with all of its threads.
    const TeamScope team(options.threads > 0
                             ? options.threads
                             : (on_stream ? device_threads(Device{}) : device_limit));
    threads = num_threads();
    function = transform(traced, options);
    if (on_stream) io.emplace(options.device, function.graph->inputs(), function.outputs);
    std::vector<ScheduledKernel> schedule = prepare_kernels();
    Layout layout = lay_out(schedule);
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

  // Until it is let go of no plan records; of no use on a device that records nothing.
  std::shared_lock<std::shared_mutex> hold_recordings() const {
    return io ? std::shared_lock(recording_mutex) : std::shared_lock<std::shared_mutex>();
  }

  std::vector<ScheduledKernel> prepare_kernels() {
    const auto lock = hold_recordings();
    std::vector<ScheduledKernel> schedule;
    for (const auto& node : function.graph->nodes())
      if (needs_kernel(*node)) schedule.push_back({node.get(), prepare(*node)});
    return schedule;
  }

  // With memory for the buckets that are to lie apart.
  Layout lay_out(const std::vector<ScheduledKernel>& schedule) {
    if (options.bucket_memory) {
      Layout layout = make_layout(function, schedule, BucketMemory::kOwn);
      if (layout.bucket_bytes == 0) return layout;
      const auto lock = hold_recordings();
      buckets = options.bucket_memory(layout.bucket_bytes);
      if (buckets != nullptr) return layout;
    }
    return make_layout(function, schedule, BucketMemory::kArena);
  }

  std::unique_ptr<Kernel> prepare(const Node& node) {
    try {
      const KernelSpec spec = spec_of(node, options.device, threads);
      if (spec.attributes.has("part") && !is_start(node)) return make_part_kernel(spec);
      if (!io || has_kernel(spec.op, options.device.type)) return make_kernel(spec);
      if (std::find(stats.host_ops.begin(), stats.host_ops.end(), spec.op) == stats.host_ops.end())
        stats.host_ops.emplace_back(spec.op);
      return make_host_kernel(spec, node.resource() != nullptr);
    } catch (const Error& error) {
      throw error.with_context(node.name());
    }
  }

  void bind() {
    const size_t scratch_offset = scratch_size(stats.arena_bytes);
    arena = device_backend(options.device.type)
                .allocate(options.device, scratch_offset + stats.scratch_bytes,
                          "a function's intermediates");
    scratch = static_cast<char*>(arena->data) + scratch_offset;
    for (size_t s = 0; s < steps.size(); ++s) {
      Step& step = steps[s];
      const auto& inputs = step.node->inputs();
      for (size_t i = 0; i < inputs.size(); ++i) {
        const Location& place = locations.at(inputs[i]);
        if (place.kind == Location::Kind::kFeed && !io) feed_uses.push_back({s, i, place.index});
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
    for (const Value& output : function.outputs)
      result_sources.push_back(address(locations.at(output)));
    find_exchanges();
    if (!io) return;
    stats.recorded = std::all_of(steps.begin(), steps.end(),
                                 [](const Step& step) { return step.kernel->can_record(); });
  }

  void find_exchanges() {
    Exchange* last = nullptr;
    for (const auto& node : function.graph->nodes()) {
      if (is_barrier(*node) && variables.has_copies()) {
        last = &exchanges[node.get()];
        last->written.swap(written_last);
      } else if (is_write(*node)) {
        written_last.insert(node->resource());
      } else if (is_read(*node) && last != nullptr) {
        last->read.insert(node->resource());
      }
    }
  }

  // Null for feeds in the host's memory.
  void* address(const Location& place) {
    switch (place.kind) {
      case Location::Kind::kArena:
        return static_cast<char*>(arena->data) + place.offset;
      case Location::Kind::kBuckets:
        return static_cast<char*>(buckets->data) + place.offset;
      case Location::Kind::kVariable:
        return variable_storage(place.variable);
      case Location::Kind::kConstant:
        return io ? io->constant(*place.constant) : const_cast<void*>(place.constant->raw());
      case Location::Kind::kFeed:
        return io ? io->feed(place.index) : nullptr;
    }
    return nullptr;
  }

  void* variable_storage(Resource* resource) { return variables.of(resource); }

  void check_feeds(std::span<const Tensor> feeds) const {
    const auto& wanted = function.graph->inputs();
    if (feeds.size() != wanted.size())
      invalid("expected ", wanted.size(), " inputs, got ", feeds.size());
    for (size_t i = 0; i < feeds.size(); ++i)
      if (!(feeds[i].spec() == wanted[i].spec()))
        invalid("input ", wanted[i].node().name(), " is ", wanted[i].spec(), ", got ",
                feeds[i].spec());
  }

  // Kernels are made for the team that they run on.
  void check_team() const {
    if (num_threads() != threads)
      fail(Code::kFailedPrecondition, "this plan is for a team of ", threads,
           " threads, and here, in a parallel region or by its settings, OpenMP gives ",
           num_threads(), "; make the plan here, or for 1 (PlanOptions::threads)");
  }

  void run(std::span<const Tensor> feeds, const StepInfo& info, std::vector<Tensor>& outputs) {
    check_feeds(feeds);
    const TeamScope team(threads);
    check_team();
    variables.begin_run(written_last);
    variables.load();
    if (io)
      run_on_stream(feeds, info);
    else
      run_on_host(feeds, info);
    variables.store(written_last);
    variables.end_run(written_last);
    collect(feeds, outputs);
  }

  void run_on_host(std::span<const Tensor> feeds, const StepInfo& info) {
    for (const FeedUse& use : feed_uses) steps[use.step].inputs[use.slot] = feeds[use.feed].raw();
    const bool is_profiled = Profiler::is_active();
    for (Step& step : steps) {
      check_cancelled();
      if (is_profiled)
        run_profiled(step, info);
      else
        run_step(step, info);
    }
  }

  // The first run that comes to its end prepares what kernels prepare late; the next one is
  // recorded, and replayed by all from then on.
  void run_on_stream(std::span<const Tensor> feeds, const StepInfo& info) {
    check_cancelled();
    std::optional<DeviceTimes> times;
    try {
      io->send(feeds, info);
      if (Profiler::is_active()) {
        DeviceCollectives* collectives = collectives_of(info);
        times.emplace(io->stream(), collectives == nullptr ? nullptr : collectives->stream());
        hand_over(info, &*times);
      } else if (can_replay(info)) {
        io->stream().replay(*recording);
      } else {
        hand_over(info);
        prepared = true;
      }
    } catch (...) {
      drain();
      throw;
    }
    finish(info);
    if (times) times->tell(info.replica_id);
    if (const KernelFault& fault = io->fault(); fault.kernel > 0) {
      const Step& step = steps[static_cast<size_t>(fault.kernel) - 1];
      throw located(step.kernel->describe(fault), *step.node, info);
    }
  }

  // Waits for what was handed over, and throws what has gone wrong with its reductions.
  void finish(const StepInfo& info) {
    io->stream().synchronize();
    if (DeviceCollectives* collectives = collectives_of(info)) collectives->check();
  }

  // Ends what was handed over before an error: the next step writes where it reads, and what is fed
  // may be gone.
  void drain() {
    try {
      io->stream().synchronize();
    } catch (const Error&) {  // the first error is the one to tell
    }
  }

  // The first run prepares as well; not where it may wait for other replicas.
  void hand_over(const StepInfo& info, DeviceTimes* times = nullptr) {
    std::shared_lock preparing(recording_mutex, std::defer_lock);
    if (stats.recorded && !prepared) preparing.lock();
    for (Step& step : steps) {
      if (times != nullptr) times->start(*step.node);
      run_step(step, info);
      if (times != nullptr) times->stop();
    }
    io->fetch(result_sources);
  }

  // Records a step where that is to be done now.
  bool can_replay(const StepInfo& info) {
    if (stats.recorded && prepared && recording == nullptr) record(info);
    return recording != nullptr;
  }

  // What cannot be recorded after all, as where a library waits for the device, goes on without.
  // Nothing of it has been done.
  void record(const StepInfo& info) {
    const std::lock_guard recording_alone(recording_mutex);
    std::optional<std::string> failure;
    bool begun = false;
    try {
      io->stream().begin_recording();
      begun = true;
      hand_over(info);
    } catch (const std::exception& error) {
      failure = error.what();
    }
    try {
      if (begun) recording = io->stream().end_recording();
    } catch (const Error& error) {
      if (!failure) failure = error.what();
    }
    if (!failure) return;
    recording = nullptr;
    stats.recorded = false;
    print_notice(
        str("warning: steps on ", options.device, " cannot be recorded: ", *failure, "\n"));
  }

  void run_step(Step& step, const StepInfo& info) {
    try {
      KernelContext context{step.inputs, step.outputs, scratch, info};
      if (io) {
        context.stream = &io->stream();
        context.device_step = io->device_step();
        context.fault = io->device_fault();
        context.number = static_cast<int32_t>(&step - steps.data()) + 1;
      }
      const auto exchange = exchanges.find(step.node);
      if (exchange != exchanges.end()) bring_back(exchange->second.written, info);
      step.kernel->run(context);
      if (exchange != exchanges.end()) variables.refresh(exchange->second.read);
    } catch (const Error& error) {
      throw located(error, *step.node, info);
    }
  }

  // What a check has to say is of the data of one replica, and of one step.
  static Error located(const Error& error, const Node& node, const StepInfo& info) {
    if (!node.op().may_fail || info.num_replicas == 1) return error.with_context(node.name());
    return error.with_context(str(node.name(), " on replica ", info.replica_id, " in step ",
                                  info.step, ", counted from 0"));
  }

  // For other replicas, which wait at a Barrier.
  void bring_back(const VariableMemory::Variables& written, const StepInfo& info) {
    if (written.empty()) return;
    if (io) finish(info);
    variables.store(written);
  }

  void run_profiled(Step& step, const StepInfo& info) {
    const auto begin = Profiler::Clock::now();
    run_step(step, info);
    Profiler::record(step.node->name(), step.node->op().name, info.replica_id, begin,
                     Profiler::Clock::now());
  }

  // Whether nobody else refers to the memory any more. Another thread may have let go of it just
  // now: counting one more owner puts its last access before ours, which reading the count does
  // not.
  static bool is_free(const Tensor& tensor) {
    if (!tensor.defined() || tensor.use_count() > 1) return false;
    [[maybe_unused]] const Tensor owner = tensor;  // NOLINT: see above
    return true;
  }

  Tensor new_output(const TensorSpec& spec) const {
    auto memory = options.output_memory ? options.output_memory(spec.bytes()) : nullptr;
    if (memory == nullptr) return Tensor(spec.dtype, spec.shape);
    return Tensor(spec.dtype, spec.shape, std::move(memory));
  }

  void collect(std::span<const Tensor> feeds, std::vector<Tensor>& outputs) {
    outputs.resize(function.outputs.size());
    held.resize(function.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Value& value = function.outputs[i];
      const Location& place = locations.at(value);
      outputs[i] = Tensor();  // the caller's old result may be the only other owner
      if (!is_free(held[i])) held[i] = new_output(value.spec());
      const void* source =
          io ? io->result(i)
             : (place.kind == Location::Kind::kFeed ? feeds[place.index].raw() : result_sources[i]);
      if (held[i].bytes() > 0) std::memcpy(held[i].raw(), source, held[i].bytes());
      outputs[i] = held[i];
    }
  }
};

Plan::Plan(const GraphFunction& function, const PlanOptions& options)
    : impl_(std::make_unique<Impl>(options)) {
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
