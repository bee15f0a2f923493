#include <algorithm>

#include "core/collective/communicator.h"
#include "core/collective/device_collectives.h"
#include "core/kernels/common/host_kernel.h"
#include "core/kernels/common/step_collectives.h"

// Collectives of a step: on the device, behind the computation, where the communicator has
// collectives there that can; else through copies in host memory. Which it is depends on the op and
// on dtypes alone, so that all replicas do the same.
namespace cohort::cuda {
namespace {

DeviceCollectives* collectives_of(const KernelContext& context) {
  Communicator* communicator = context.step.communicator;
  return communicator == nullptr ? nullptr : communicator->on_device();
}

// An op whose results the next kernels need: what it asks for is complete before them.
class CollectiveKernel : public Kernel {
 public:
  explicit CollectiveKernel(const KernelSpec& spec)
      : op_(spec.op),
        inputs_(spec.inputs),
        outputs_(spec.outputs),
        attributes_(spec.attributes),
        device_(spec.device),
        num_threads_(spec.num_threads) {}

  bool can_record() const final { return false; }

  void run(const KernelContext& context) final {
    const std::span<const Call> calls = calls_of(context);
    DeviceCollectives* device = collectives_of(context);
    const auto can_run = [&](const Call& call) { return device->can_run(call); };
    if (context.step.communicator == nullptr)
      copy(context);
    else if (device != nullptr && std::all_of(calls.begin(), calls.end(), can_run))
      run_on_device(calls, *device, *context.stream);
    else
      on_host().run(context);
  }

 private:
  // What it asks of the replicas, valid until it is asked again; throws what is wrong with that.
  virtual std::span<const Call> calls_of(const KernelContext& context) = 0;

  void copy(const KernelContext& context) const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      context.stream->copy_within_device(context.inputs[i], context.outputs[i],
                                         outputs_[i].bytes());
  }

  // The address of a call names it.
  static void run_on_device(std::span<const Call> calls, DeviceCollectives& device,
                            Stream& stream) {
    for (const Call& call : calls) device.start(call, stream, &call);
    for (const Call& call : calls) device.wait(&call, stream);
  }

  // Made when it is needed: memory that the device copies by itself is dear.
  Kernel& on_host() {
    if (host_ == nullptr)
      host_ = make_host_kernel({op_, inputs_, outputs_, attributes_, device_, num_threads_}, false);
    return *host_;
  }

  const std::string op_;
  const std::vector<TensorSpec> inputs_, outputs_;
  const Attributes attributes_;
  const Device device_;
  const int num_threads_;
  std::unique_ptr<Kernel> host_;
};

class AllReduceKernel final : public CollectiveKernel {
 public:
  explicit AllReduceKernel(const KernelSpec& spec) : CollectiveKernel(spec), calls_(spec) {}

  bool can_run_in_place(int output, int input) const override { return output == input; }

 private:
  std::span<const Call> calls_of(const KernelContext& context) override {
    return calls_.with(context);
  }

  AllReduceCalls calls_;
};

class AllGatherKernel final : public CollectiveKernel {
 public:
  explicit AllGatherKernel(const KernelSpec& spec)
      : CollectiveKernel(spec), extents_(spec, spec.inputs[0].shape[0], spec.inputs[0]) {}

 private:
  std::span<const Call> calls_of(const KernelContext& context) override {
    extents_.check(context.step);
    call_ = AllGatherCall{context.inputs[0], context.outputs[0], extents_.bytes()};
    return {&call_, 1};
  }

  Extents extents_;
  Call call_;
};

class ReduceScatterKernel final : public CollectiveKernel {
 public:
  explicit ReduceScatterKernel(const KernelSpec& spec)
      : CollectiveKernel(spec),
        dtype_(spec.inputs[0].dtype),
        extents_(spec, spec.outputs[0].shape[0], spec.inputs[0]) {}

 private:
  std::span<const Call> calls_of(const KernelContext& context) override {
    extents_.check(context.step);
    call_ = ReduceScatterCall{context.inputs[0], context.outputs[0], extents_.elements(), dtype_,
                              ReduceOp::kSum};
    return {&call_, 1};
  }

  DType dtype_;
  Extents extents_;
  Call call_;
};

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(const KernelSpec& spec)
      : CollectiveKernel(spec),
        bytes_(static_cast<int64_t>(spec.inputs[0].bytes())),
        root_(static_cast<int>(spec.attributes.get<int64_t>("root"))) {}

  bool can_run_in_place(int /*output*/, int /*input*/) const override { return true; }

 private:
  std::span<const Call> calls_of(const KernelContext& context) override {
    check_root(root_, context.step);
    call_ = BroadcastCall{context.inputs[0], context.outputs[0], bytes_, root_};
    return {&call_, 1};
  }

  int64_t bytes_;
  int root_;
  Call call_;
};

// Where it goes through the host, it is complete at the start.
class AllReduceStartKernel final : public Kernel {
 public:
  explicit AllReduceStartKernel(const KernelSpec& spec)
      : device_(spec.device),
        specs_(spec.outputs.begin(), spec.outputs.end() - 1),
        op_(reduce_op_of(spec)),
        conditional_(spec.attributes.get<bool>("conditional")) {
    DeviceBackend& backend = device_backend(spec.device.type);
    for (const TensorSpec& value : specs_) {
      if (value.dtype != specs_[0].dtype)
        invalid("AllReduceStart: all values need one dtype, got ", specs_[0], " and ", value);
      segments_.push_back({nullptr, nullptr, value.shape.num_elements()});
    }
    wanted_.assign(segments_.size(), true);
    for (const int64_t i : spec.attributes.get_or<std::vector<int64_t>>("unwanted", {})) {
      if (i < 0 || i >= static_cast<int64_t>(segments_.size()))
        invalid("AllReduceStart: unwanted value ", i, " of ", segments_.size());
      wanted_[static_cast<size_t>(i)] = false;
    }
    flag_ = backend.allocate_staging(spec.device, sizeof(bool));
    operation_ = backend.allocate_staging(spec.device, sizeof(int64_t));
    *static_cast<int64_t*>(operation_->data) = -1;  // nothing to wait for
  }

  bool can_run_in_place(int output, int input) const override {
    return output == input && output < static_cast<int>(specs_.size());
  }
  bool can_record() const override { return false; }

  void run(const KernelContext& context) override {
    context.stream->copy_from_host(operation_->data, context.outputs[specs_.size()],
                                   sizeof(int64_t));
    DeviceCollectives* device = collectives_of(context);
    if (device != nullptr && device->can_run(AllReduceCall{segments_, specs_[0].dtype, op_}))
      reduce_on_device(context, *device);
    else
      reduce_on_host(context);
  }

 private:
  // The address of the operation's number names it.
  void reduce_on_device(const KernelContext& context, DeviceCollectives& device) const {
    std::vector<Segment> segments = segments_;
    for (size_t i = 0; i < specs_.size(); ++i) {
      context.stream->copy_within_device(context.inputs[i], context.outputs[i], specs_[i].bytes());
      segments[i].source = segments[i].target = context.outputs[i];
    }
    if (conditional_) copy_flag(context);
    if (is_wanted_now())
      device.start(AllReduceCall{segments, specs_[0].dtype, op_}, *context.stream,
                   context.outputs[specs_.size()]);
  }

  void reduce_on_host(const KernelContext& context) {
    if (staged_.empty()) stage();
    Stream& stream = *context.stream;
    for (size_t i = 0; i < staged_.size(); ++i)
      stream.copy_to_host(context.inputs[i], staged_[i]->data, staged_[i]->bytes);
    copy_flag(context);
    if (is_wanted_now() && context.step.communicator != nullptr)
      context.step.communicator->all_reduce(segments_, specs_[0].dtype, op_);
    for (size_t i = 0; i < staged_.size(); ++i)
      stream.copy_from_host(staged_[i]->data, context.outputs[i], staged_[i]->bytes);
  }

  // At the first reduction there: memory that the device copies by itself is dear, and a bucket has
  // the size of its gradients.
  void stage() {
    std::vector<std::shared_ptr<Buffer>> staged;
    for (size_t i = 0; i < specs_.size(); ++i) {
      staged.push_back(device_backend(device_.type).allocate_staging(device_, specs_[i].bytes()));
      segments_[i].source = staged[i]->data;
      segments_[i].target = wanted_[i] ? staged[i]->data : nullptr;
    }
    staged_ = std::move(staged);
  }

  // Returns when everything that was handed over has been done.
  void copy_flag(const KernelContext& context) const {
    if (conditional_)
      context.stream->copy_to_host(context.inputs[specs_.size()], flag_->data, sizeof(bool));
    context.stream->synchronize();
  }
  bool is_wanted_now() const { return !conditional_ || *static_cast<const bool*>(flag_->data); }

  Device device_;
  std::vector<TensorSpec> specs_;
  ReduceOp op_;
  bool conditional_;
  std::vector<bool> wanted_;                     // by this replica
  std::vector<std::shared_ptr<Buffer>> staged_;  // for the host; none before it reduces
  std::vector<Segment> segments_;                // of the staged memory
  std::shared_ptr<Buffer> flag_, operation_;
};

class AllReduceWaitKernel final : public Kernel {
 public:
  explicit AllReduceWaitKernel(const KernelSpec& spec) : specs_(spec.outputs) {}

  bool can_run_in_place(int output, int input) const override { return output == input; }

  void run(const KernelContext& context) override {
    if (DeviceCollectives* device = collectives_of(context))
      device->wait(context.inputs[specs_.size()], *context.stream);
    for (size_t i = 0; i < specs_.size(); ++i)
      context.stream->copy_within_device(context.inputs[i], context.outputs[i], specs_[i].bytes());
  }

 private:
  std::vector<TensorSpec> specs_;
};

COHORT_REGISTER_KERNEL("AllReduce", kGpu, make_plain<AllReduceKernel>);
COHORT_REGISTER_KERNEL("AllGather", kGpu, make_plain<AllGatherKernel>);
COHORT_REGISTER_KERNEL("ReduceScatter", kGpu, make_plain<ReduceScatterKernel>);
COHORT_REGISTER_KERNEL("Broadcast", kGpu, make_plain<BroadcastKernel>);
COHORT_REGISTER_KERNEL("AllReduceStart", kGpu, make_plain<AllReduceStartKernel>);
COHORT_REGISTER_KERNEL("AllReduceWait", kGpu, make_plain<AllReduceWaitKernel>);

}  // namespace
}  // namespace cohort::cuda
