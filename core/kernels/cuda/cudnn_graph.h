#pragma once

#include <cudnn.h>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/kernels/cuda/engine_rules.h"
#include "core/kernels/cuda/plan_refusals.h"

// cuDNN's graphs: descriptions of tensors and operations, and plans that execute them.
namespace cohort::cuda {

// Throws what a call of cuDNN reports, in cuDNN's words (code_of_cudnn).
void check_cudnn(cudnnStatus_t status, const char* call);
#define COHORT_CUDNN(call) ::cohort::cuda::check_cudnn(call, #call)

cudnnDataType_t cudnn_type(DType dtype);  // kUnimplemented for what is not a floating type

// A description that cuDNN makes and takes back. Copies refer to the same one.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return descriptor_.get(); }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void* values);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const int64_t> values);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, int64_t value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, bool value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, float value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnHandle_t value);
  // `value` lives as long as this.
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor> values);
  // No attribute is set after this.
  CudnnDescriptor& finish();

 private:
  std::shared_ptr<void> descriptor_;
  std::shared_ptr<std::vector<CudnnDescriptor>> parts_;
};

// cuDNN for one card: that of a logical GPU, by a handle, which belongs to whoever holds the mutex;
// or one that is only described, by a CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR. What is planned for that
// cannot run.
struct Cudnn {
  Device device;
  int capability = 0;  // the major number of the card's compute capability
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  std::optional<CudnnDescriptor> properties;  // where there is no handle

  // Made at the first use, and never ended: CUDA is gone before static objects. The card becomes
  // the thread's, as descriptions are of that one.
  static Cudnn& of(Device device);
};

// How a tensor of a graph is there: in memory, as a number that is given by value with the
// pointers, or between operations only.
enum class CudnnTensorKind { kMemory, kByValue, kVirtual };
// `id` is the tensor's own in its graph. Memory is aligned to 16 bytes at least.
CudnnDescriptor cudnn_tensor(int64_t id, cudnnDataType_t type, std::span<const int64_t> dims,
                             std::span<const int64_t> strides,
                             CudnnTensorKind kind = CudnnTensorKind::kMemory);

// What an operation does with each element, computed in `math`; more may be set before it is used.
CudnnDescriptor cudnn_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math);
// y = `description` of x, of b where it takes two, and of t where it takes three.
CudnnDescriptor cudnn_pointwise_operation(CudnnDescriptor description, const CudnnDescriptor& x,
                                          const CudnnDescriptor* b, const CudnnDescriptor* t,
                                          const CudnnDescriptor& y);

// A graph of operations as one engine of cuDNN executes it.
class CudnnPlan {
 public:
  // The first plan that cuDNN proposes, allowed by `rules` and without a large workspace where
  // there is such a one (PlanChoice). Where there is none, kUnimplemented, or how CUDA has failed.
  CudnnPlan(Cudnn& cudnn, const std::vector<CudnnDescriptor>& operations, const EngineRules& rules);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // Hands it over, with the memory of the tensors that have these ids. Thread-safe.
  void run(Stream& stream, std::span<const int64_t> ids, std::span<void* const> pointers,
           void* workspace) const;

 private:
  Cudnn& cudnn_;
  CudnnDescriptor plan_;
  size_t workspace_bytes_;
};

// What `make` makes of cuDNN on `device`, to be kept with others of its kind; as
// made_unless_refused.
template <typename Make>
auto made_by_cudnn(Device device, const std::string& what, const Make& make) {
  return made_unless_refused(device, what, [&] { return make(Cudnn::of(device)); });
}

}  // namespace cohort::cuda
