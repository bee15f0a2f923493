#include <numeric>

#include "core/kernels/cuda/cudnn_graph.h"
#include "core/kernels/cuda/cudnn_plans.h"
#include "core/kernels/cuda/plan_cache.h"

// LayerNorm, RmsNorm and their gradients, as graphs of one operation.
namespace cohort::cuda {
namespace {

constexpr int64_t kEpsilon = 100;

// The operation of one graph. Tensors have the ids of their order in the op, inputs first.
class RowNormGraph {
 public:
  explicit RowNormGraph(const RowNormProblem& problem)
      : p_(problem), operation_(p_.gradient ? gradient() : normalisation()) {}

  const CudnnDescriptor& operation() const { return operation_; }
  int64_t tensors() const { return tensors_; }

 private:
  CudnnDescriptor matrix(DType dtype, int64_t rows, int64_t columns) {
    const std::array<int64_t, 4> dims = {rows, columns, 1, 1},
                                 strides = {columns, 1, columns, columns};
    return cudnn_tensor(tensors_++, cudnn_type(dtype), dims, strides);
  }
  CudnnDescriptor like_x() { return matrix(p_.dtype, p_.rows, p_.columns); }
  CudnnDescriptor parameter() { return matrix(p_.parameter, 1, p_.columns); }
  CudnnDescriptor statistic() { return matrix(DType::kFloat32, p_.rows, 1); }

  CudnnDescriptor norm_of(cudnnBackendDescriptorType_t type,
                          cudnnBackendAttributeName_t mode) const {
    const cudnnBackendNormMode_t value = p_.centered ? CUDNN_LAYER_NORM : CUDNN_RMS_NORM;
    return CudnnDescriptor(type).set(mode, CUDNN_TYPE_NORM_MODE, 1, &value);
  }

  // x, gamma [, beta] -> y [, mean], rstd.
  CudnnDescriptor normalisation() {
    constexpr cudnnBackendNormFwdPhase_t kPhase = CUDNN_NORM_FWD_TRAINING;
    constexpr std::array<int64_t, 4> kOne = {1, 1, 1, 1};
    CudnnDescriptor norm = norm_of(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_NORM_FWD_MODE);
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &kPhase)
        .set(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC,
             cudnn_tensor(kEpsilon, CUDNN_DATA_FLOAT, kOne, kOne, CudnnTensorKind::kByValue));
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, like_x());
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, parameter());
    if (p_.centered) norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, parameter());
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, like_x());
    if (p_.centered) norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, statistic());
    norm.set(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, statistic());
    return norm.finish();
  }

  // dy, x, gamma [, mean], rstd -> dx, dgamma [, dbeta].
  CudnnDescriptor gradient() {
    CudnnDescriptor norm = norm_of(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_NORM_BWD_MODE);
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, like_x());
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, like_x());
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, parameter());
    if (p_.centered) norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, statistic());
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, statistic());
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, like_x());
    norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, parameter());
    if (p_.centered) norm.set(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, parameter());
    return norm.finish();
  }

  const RowNormProblem p_;
  int64_t tensors_ = 0;
  const CudnnDescriptor operation_;
};

class CudnnRowNormPlan final : public LibraryPlan {
 public:
  CudnnRowNormPlan(const RowNormProblem& problem, Cudnn& cudnn)
      : CudnnRowNormPlan(RowNormGraph(problem), problem, cudnn) {}

  size_t workspace_bytes() const override { return plan_.workspace_bytes(); }
  void run(Stream& stream, std::span<void* const> tensors, void* workspace) override {
    COHORT_CHECK(tensors.size() == tensors_);
    std::vector<int64_t> ids(tensors_);
    std::iota(ids.begin(), ids.end(), 0);
    std::vector<void*> pointers(tensors.begin(), tensors.end());
    if (!is_gradient_) {
      ids.push_back(kEpsilon);
      pointers.push_back(&epsilon_);
    }
    plan_.run(stream, ids, pointers, workspace);
  }

 private:
  // All sums are in float32 of operands that have fewer bits.
  CudnnRowNormPlan(const RowNormGraph& graph, const RowNormProblem& problem, Cudnn& cudnn)
      : tensors_(static_cast<size_t>(graph.tensors())),
        is_gradient_(problem.gradient),
        epsilon_(problem.epsilon),
        plan_(cudnn, {graph.operation()}, EngineRules{}) {}

  const size_t tensors_;
  const bool is_gradient_;
  float epsilon_;  // given by value
  CudnnPlan plan_;
};

std::shared_ptr<LibraryPlan> make_plan(const RowNormProblem& problem, Device device) {
  const std::string what =
      str(problem.gradient ? "the gradient of " : "", problem.centered ? "LayerNorm" : "RmsNorm",
          " over ", problem.columns, " columns, ", problem.dtype,
          ", is done without cuDNN, on copies in float32");
  return made_by_cudnn(device, what, [&](Cudnn& cudnn) { return plan_row_norm(problem, cudnn); });
}

}  // namespace

std::shared_ptr<LibraryPlan> plan_row_norm(const RowNormProblem& problem, Cudnn& cudnn) {
  return std::make_shared<CudnnRowNormPlan>(problem, cudnn);
}

std::shared_ptr<LibraryPlan> find_row_norm_plan(const RowNormProblem& problem, Device device) {
  static auto* cache = new PlanCache<RowNormProblem, LibraryPlan>();
  return cache->find_or_make(device, problem, [&] { return make_plan(problem, device); });
}

}  // namespace cohort::cuda
