
#include "core/kernels/cuda/cudnn_graph.h"
#include "core/kernels/cuda/cudnn_plans.h"
#include "core/kernels/cuda/plan_cache.h"

// Convolutions as graphs of one operation, with a bias behind it where the problem has one.
namespace cohort::cuda {
namespace {

enum TensorId : int64_t { kX = 1, kFilter = 2, kY = 3, kBias = 4, kProduct = 5 };

CudnnDescriptor describe(TensorId id, const ConvTensor& tensor) {
  return cudnn_tensor(id, cudnn_type(tensor.dtype), tensor.dims, tensor.strides);
}

CudnnDescriptor convolution(const ConvProblem& p) {
  constexpr cudnnConvolutionMode_t kMode = CUDNN_CROSS_CORRELATION;
  CudnnDescriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &kMode)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, p.padding)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, p.padding)
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, p.strides)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, p.dilations);
  return convolution.finish();
}

// How cuDNN calls the attributes of each of the three operations.
struct Names {
  cudnnBackendDescriptorType_t type;
  cudnnBackendAttributeName_t convolution, x, filter, y, alpha, beta;
};

Names names_of(ConvResult result) {
  switch (result) {
    case ConvResult::kX:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvResult::kFilter:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
  }
}

CudnnDescriptor operation(const ConvProblem& p, const CudnnDescriptor& y) {
  const Names names = names_of(p.result);
  CudnnDescriptor operation(names.type);
  operation.set(names.convolution, convolution(p))
      .set(names.x, describe(kX, p.x))
      .set(names.filter, describe(kFilter, p.filter))
      .set(names.y, y)
      .set(names.alpha, 1.0f)
      .set(names.beta, 0.0f);
  return operation.finish();
}

// One number for each channel of y.
CudnnDescriptor bias(const ConvTensor& y) {
  const int64_t channels = y.dims[1];
  const std::array<int64_t, 4> dims = {1, channels, 1, 1},
                               strides = {channels, 1, channels, channels};
  return cudnn_tensor(kBias, cudnn_type(y.dtype), dims, strides);
}

std::vector<CudnnDescriptor> operations(const ConvProblem& p) {
  const CudnnDescriptor y = describe(kY, p.y);
  if (!p.bias) return {operation(p, y)};
  const CudnnDescriptor product = cudnn_tensor(kProduct, CUDNN_DATA_FLOAT, p.y.dims, p.y.strides,
                                               CudnnTensorKind::kVirtual),
                        addend = bias(p.y);
  return {operation(p, product),
          cudnn_pointwise_operation(cudnn_pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT), product,
                                    &addend, nullptr, y)};
}

class CudnnConvPlan final : public ConvPlan {
 public:
  CudnnConvPlan(const ConvProblem& problem, Cudnn& cudnn)
      : tensors_(problem.bias ? 4 : 3),
        plan_(cudnn, operations(problem),
              {.float32 = problem.x.dtype == DType::kFloat32, .tf32 = problem.tf32}) {}

  size_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  void run(Stream& stream, const ConvMemory& memory, void* workspace) override {
    constexpr std::array<int64_t, 4> kIds = {kX, kFilter, kY, kBias};
    const std::array<void*, 4> pointers = {memory.x, memory.filter, memory.y, memory.bias};
    plan_.run(stream, std::span(kIds).first(tensors_), std::span(pointers).first(tensors_),
              workspace);
  }

 private:
  size_t tensors_;
  CudnnPlan plan_;
};

std::shared_ptr<ConvPlan> make_plan(const ConvProblem& problem, Device device) {
  // Without an epilogue there may be a plan still, which is asked for next.
  const std::string what = problem.bias
                               ? ""
                               : str("a convolution of ", problem.x.dims[1], " channels, filter ",
                                     problem.filter.dims[2], "x", problem.filter.dims[3], ", ",
                                     problem.x.dtype, ", is done without cuDNN, slowly");
  return made_by_cudnn(device, what, [&](Cudnn& cudnn) { return plan_conv(problem, cudnn); });
}

}  // namespace

std::shared_ptr<ConvPlan> plan_conv(const ConvProblem& problem, Cudnn& cudnn) {
  return std::make_shared<CudnnConvPlan>(problem, cudnn);
}

// float64 is for checking gradients; our own loops do.
std::shared_ptr<ConvPlan> find_conv_plan(const ConvProblem& problem, Device device) {
  if (problem.x.dtype == DType::kFloat64) return nullptr;
  static auto* cache = new PlanCache<ConvProblem, ConvPlan>();
  return cache->find_or_make(device, problem, [&] { return make_plan(problem, device); });
}

}  // namespace cohort::cuda
