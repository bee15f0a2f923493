#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "core/tensor/attributes.h"

namespace cohort {

class Communicator;  // core/collective/communicator.h

// What a kernel is made for: one node with static shapes on one device.
struct KernelSpec {
  std::string_view op;
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
  const Attributes& attributes;
  Device device;
  int num_threads = 1;
};

// What changes from step to step, the same for every kernel of a step.
struct StepInfo {
  uint64_t seed = 0;  // keys the random ops, together with step and replica_id
  int64_t step = 0;
  int replica_id = 0;  // global, 0 .. num_replicas - 1
  int num_replicas = 1;
  Communicator* communicator = nullptr;  // of the replicas in sync; null when there is one
};

// What a kernel on a stream found wrong with its data: it cannot throw. It writes nothing where the
// mistake would, goes on, and leaves this for the end of the step; the first mistake stays.
struct KernelFault {
  int32_t kernel = 0;    // KernelContext::number of who found it; 0: nothing was found
  int64_t value = 0;     // what was found,
  int64_t position = 0;  // and where
};

// The memory of one execution. Pointers are on the kernel's device, aligned to kBufferAlignment
// except where an input is a feed of the caller's; zero-size tensors have a pointer that must not
// be read.
struct KernelContext {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;
  void* scratch = nullptr;  // scratch_bytes() bytes, undefined content
  const StepInfo& step;
  // On devices whose memory is not the host's; null on others. A kernel only hands its work over,
  // which happens again with the same arguments at each replay of a recording: what changes from
  // step to step it reads from `device_step`, in the device's memory.
  Stream* stream = nullptr;
  const StepInfo* device_step = nullptr;  // with no communicator
  KernelFault* fault = nullptr;           // in the device's memory
  int32_t number = 1;

  template <typename T>
  const T* input(int i) const {
    return static_cast<const T*>(inputs[i]);
  }
  template <typename T>
  T* output(int i) const {
    return static_cast<T*>(outputs[i]);
  }
};

// The work of one node, prepared once (primitives, tilings) and then run every step. `run`
// allocates nothing, is called from one thread at a time, and writes every element of every output.
// CPU kernels parallelise with parallel_for or oneDNN on the calling thread's team.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void run(const KernelContext& context) = 0;
  virtual size_t scratch_bytes() const { return 0; }
  // True when output `output` may be given the memory of input `input` of the same size.
  virtual bool can_run_in_place(int /*output*/, int /*input*/) const { return false; }
  // On a stream: whether a step with it may be recorded. Not where the host takes part.
  virtual bool can_record() const { return true; }
  // What a fault that it left means, as on a device whose kernels throw.
  virtual Error describe(const KernelFault& fault) const;
};

using KernelFactory = std::function<std::unique_ptr<Kernel>(const KernelSpec&)>;

// Makes the kernel of a node; kUnimplemented naming op, device and dtypes when none is registered.
std::unique_ptr<Kernel> make_kernel(const KernelSpec& spec);
bool has_kernel(std::string_view op, DeviceType type);

// Registers the factory of an op on a device type; twice is a bug (kInternal).
struct KernelRegistration {
  KernelRegistration(std::string op, DeviceType type, KernelFactory factory);
};

// Makes kernels of a class that is constructed from the spec.
template <typename K>
std::unique_ptr<Kernel> make_plain(const KernelSpec& spec) {
  return std::make_unique<K>(spec);
}

// A kernel without state beyond its spec: the function is called with the spec's copy at each run.
struct KernelCall {
  const std::vector<TensorSpec>& input_specs;
  const std::vector<TensorSpec>& output_specs;
  const Attributes& attributes;
};
using KernelFunction = void (*)(const KernelCall&, const KernelContext&);
KernelFactory stateless_kernel(KernelFunction function);

}  // namespace cohort

#define COHORT_CONCAT_(a, b) a##b
#define COHORT_CONCAT(a, b) COHORT_CONCAT_(a, b)
// COHORT_REGISTER_KERNEL("Relu", kCpu, factory) at namespace scope of a .cc file in cohort.
#define COHORT_REGISTER_KERNEL(op, type, factory)                                      \
  static const ::cohort::KernelRegistration COHORT_CONCAT(registration_, __COUNTER__)( \
      op, ::cohort::DeviceType::type, factory)
