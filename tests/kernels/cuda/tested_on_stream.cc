#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "core/kernels/common/host_kernel.h"
#include "tests/kernels/cpu/tested_device.h"

// Kernels of a device with memory of its own.
namespace cohort::testing {
namespace {

DeviceBackend& backend() { return device_backend(tested_device().type); }

// Device memory with the content of host memory; places that are one on the host are one there.
class Mirror {
 public:
  void* of(const void* host, size_t bytes) {
    auto& [buffer, size] = buffers_[host];
    if (buffer == nullptr) {
      buffer = backend().allocate(tested_device(), bytes, "the test");
      size = bytes;
      if (bytes > 0) backend().copy_from_host(tested_device(), host, buffer->data, bytes);
    }
    return buffer->data;
  }
  // Gives all of it the host's content again.
  void renew() const {
    for (const auto& [host, memory] : buffers_)
      if (memory.second > 0)
        backend().copy_from_host(tested_device(), host, memory.first->data, memory.second);
  }
  std::vector<std::vector<char>> contents() const {
    std::vector<std::vector<char>> all;
    for (const auto& [host, memory] : buffers_) {
      all.emplace_back(memory.second);
      if (memory.second > 0)
        backend().copy_to_host(tested_device(), memory.first->data, all.back().data(),
                               memory.second);
    }
    return all;
  }
  void read_back(void* host) const {
    const auto& [buffer, size] = buffers_.at(host);
    if (size > 0) backend().copy_to_host(tested_device(), buffer->data, host, size);
  }

 private:
  std::map<const void*, std::pair<std::shared_ptr<Buffer>, size_t>> buffers_;
};

void run_recorded(Stream& stream, Kernel& kernel, const KernelContext& context) {
  stream.begin_recording();
  kernel.run(context);
  const auto recording = stream.end_recording();
  stream.replay(*recording);
  stream.synchronize();
}

}  // namespace

std::unique_ptr<Kernel> make_tested_kernel(KernelSpec spec) {
  spec.device = tested_device();
  if (has_kernel(spec.op, spec.device.type)) return make_kernel(spec);
  return make_host_kernel(spec, spec.op == "AssignScatter");
}

void run_tested_kernel(Kernel& kernel, const KernelSpec& spec, const KernelContext& context) {
  Mirror mirror;
  std::vector<const void*> inputs;
  std::vector<void*> outputs;
  for (size_t i = 0; i < spec.inputs.size(); ++i)
    inputs.push_back(mirror.of(context.inputs[i], spec.inputs[i].bytes()));
  for (size_t i = 0; i < spec.outputs.size(); ++i)
    outputs.push_back(mirror.of(context.outputs[i], spec.outputs[i].bytes()));
  const auto scratch = backend().allocate(tested_device(), kernel.scratch_bytes(), "the test");
  KernelFault fault;
  const auto stream = backend().make_stream(tested_device());
  KernelContext there{inputs, outputs, scratch->data, context.step};
  there.stream = stream.get();
  there.device_step = static_cast<const StepInfo*>(mirror.of(&context.step, sizeof(StepInfo)));
  there.fault = static_cast<KernelFault*>(mirror.of(&fault, sizeof(fault)));
  // As plans do: in the first run libraries prepare what they may not while a stream records.
  kernel.run(there);
  stream->synchronize();
  const auto first = mirror.contents();
  if (kernel.can_record()) {
    mirror.renew();
    run_recorded(*stream, kernel, there);
  }
  mirror.read_back(&fault);
  if (fault.kernel != 0) throw kernel.describe(fault);
  EXPECT_TRUE(mirror.contents() == first) << spec.op << " gives other bits when it runs again";
  for (void* output : context.outputs) mirror.read_back(output);
}

}  // namespace cohort::testing
