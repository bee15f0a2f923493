#include <algorithm>
#include <cstdint>
#include <cublasLt.h>
#include <map>
#include <mutex>
#include <optional>

#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/gpus.h"
#include "core/kernels/common/tf32.h"
#include "core/kernels/cuda/bias_tail.h"
#include "core/kernels/cuda/matmul_problem.h"

// MatMul(a, b) and FusedMatMul(a, b, bias) by cuBLASLt.
namespace cohort::cuda {
namespace {

// Hopper's quickest algorithms want so much.
constexpr size_t kMaxWorkspace = 32 << 20;

void check_cublas(cublasStatus_t status, const char* call, Device device) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Code::kResourceExhausted : Code::kInternal, device,
         ": ", call, ": ", cublasLtGetStatusString(status), " (", cublasLtGetStatusName(status),
         ")");
}
#define COHORT_CUBLAS(device, call) check_cublas(call, #call, device)

// One for each card; threads may share it.
cublasLtHandle_t handle_of(Device device) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  Gpu& gpu = Gpus::instance().use(device);
  gpu.enter();
  const std::lock_guard lock(mutex);
  cublasLtHandle_t& handle = handles[gpu.card()];
  if (handle == nullptr) COHORT_CUBLAS(device, cublasLtCreate(&handle));
  return handle;
}

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDA_R_32F;
    case DType::kFloat64:
      return CUDA_R_64F;
    case DType::kBFloat16:
      return CUDA_R_16BF;
    case DType::kFloat16:
      return CUDA_R_16F;
    default:
      fail(Code::kUnimplemented, "MatMul does not support ", dtype, " on GPUs");
  }
}

// A description that cuBLASLt makes and takes back.
template <typename T, cublasStatus_t (*destroy)(T)>
class Described {
 public:
  Described() = default;
  ~Described() {
    if (value_ != nullptr) destroy(value_);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  operator T() const { return value_; }
  T* put() { return &value_; }

 private:
  T value_ = nullptr;
};
using Operation = Described<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Described<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Described<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

class MatMulKernel final : public Kernel {
 public:
  explicit MatMulKernel(const KernelSpec& spec)
      : device_(spec.device),
        problem_(spec),
        epilogue_(choose_epilogue(spec)),
        y_(spec.outputs[0]),
        is_double_(y_.dtype == DType::kFloat64) {
    // An epilogue that does a part only is not used, nor one of a sum of nothing.
    if (spec.inputs.size() == 3 && (!epilogue_.complete || is_empty())) leave_to_tail(spec);
    if (is_empty()) return;
    handle_ = handle_of(device_);
    describe_operation(spec);
    describe_epilogue(spec);
    describe_matrix(problem_.first, first_);
    describe_matrix(problem_.second, second_);
    describe_matrix(problem_.result, result_);
    if (choose_algorithm()) return;
    // The product alone there may be for types and sizes that have no epilogue.
    if (epilogue_.bias) {
      leave_to_tail(spec);
      describe_epilogue(spec);
      if (choose_algorithm()) return;
    }
    fail(Code::kUnimplemented, device_, ": cuBLASLt has no algorithm for ", spec.op, " of ",
         spec.inputs[0], " and ", spec.inputs[1]);
  }

  size_t scratch_bytes() const override {
    return std::max(algorithm_.workspaceSize, tail_ ? tail_->scratch_bytes() : 0);
  }

  void run(const KernelContext& context) override {
    if (y_.bytes() == 0) return;
    const cudaStream_t stream = cuda_stream(*context.stream);
    if (is_empty())  // a sum of nothing
      COHORT_CUDA(device_, cudaMemsetAsync(context.outputs[0], 0, y_.bytes(), stream));
    else
      multiply(context, stream);
    if (tail_) tail_->run(context, context.scratch);
  }

 private:
  bool is_empty() const { return y_.bytes() == 0 || problem_.k == 0; }

  void leave_to_tail(const KernelSpec& spec) {
    epilogue_ = {};
    tail_.emplace(spec);
  }

  void describe_operation(const KernelSpec& spec) {
    cublasComputeType_t compute = is_double_ ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
    if (spec.inputs[0].dtype == DType::kFloat32 && is_tf32_allowed())
      compute = CUBLAS_COMPUTE_32F_FAST_TF32;
    COHORT_CUBLAS(device_, cublasLtMatmulDescCreate(operation_.put(), compute,
                                                    is_double_ ? CUDA_R_64F : CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem_.transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem_.transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N);
  }

  // By epilogue_. The choice of an algorithm asks the bias's address for its alignment alone.
  void describe_epilogue(const KernelSpec& spec) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, !epilogue_.bias  ? CUBLASLT_EPILOGUE_DEFAULT
                                       : epilogue_.gelu ? CUBLASLT_EPILOGUE_GELU_BIAS
                                                        : CUBLASLT_EPILOGUE_BIAS);
    const uintptr_t bias = epilogue_.bias ? kBufferAlignment : 0;
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(bias));
    if (epilogue_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(spec.inputs[2].dtype));
  }

  template <typename T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    COHORT_CUBLAS(device_,
                  cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)));
  }

  void describe_matrix(const MatMulProblem::Matrix& matrix, Layout& layout) {
    COHORT_CUBLAS(device_,
                  cublasLtMatrixLayoutCreate(layout.put(), data_type(matrix.dtype),
                                             static_cast<uint64_t>(matrix.rows),
                                             static_cast<uint64_t>(matrix.columns), matrix.rows));
    const auto batches = static_cast<int32_t>(problem_.slice_batches());
    COHORT_CUBLAS(device_,
                  cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                   &batches, sizeof(batches)));
    COHORT_CUBLAS(device_, cublasLtMatrixLayoutSetAttribute(
                               layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                               &matrix.batch_stride, sizeof(matrix.batch_stride)));
  }

  // False where cuBLASLt has none.
  bool choose_algorithm() {
    Preference preference;
    COHORT_CUBLAS(device_, cublasLtMatmulPreferenceCreate(preference.put()));
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      COHORT_CUBLAS(device_, cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                                  sizeof(value)));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
    // Parts of a product are added up in float32: others than this are rounded to y's type first.
    if (dtype_size(y_.dtype) < sizeof(float))
      prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
             static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    // Where slices but the first begin, elements alone are aligned; those of y are no smaller.
    const size_t alignment =
        problem_.slices() == 1 ? kBufferAlignment : dtype_size(problem_.first.dtype);
    for (const auto operand :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
      prefer(operand, static_cast<uint32_t>(alignment));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, operation_, first_, second_, result_, result_, preference, 1, &algorithm_, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    check_cublas(status, "cublasLtMatmulAlgoGetHeuristic", device_);
    return found > 0 && algorithm_.state == CUBLAS_STATUS_SUCCESS;
  }

  void multiply(const KernelContext& context, cudaStream_t stream) {
    if (epilogue_.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, context.inputs[2]);
    for (int64_t slice = 0; slice < problem_.slices(); ++slice)
      multiply_slice(context, problem_.first_batch(slice), stream);
  }

  void multiply_slice(const KernelContext& context, int64_t batch, cudaStream_t stream) {
    const float one = 1, zero = 0;
    const double one64 = 1, zero64 = 0;
    const char* first = context.input<char>(1) + problem_.first.offset(batch);
    const char* second = context.input<char>(0) + problem_.second.offset(batch);
    char* result = context.output<char>(0) + problem_.result.offset(batch);
    COHORT_CUBLAS(device_, cublasLtMatmul(handle_, operation_,
                                          is_double_ ? static_cast<const void*>(&one64) : &one,
                                          first, first_, second, second_,
                                          is_double_ ? static_cast<const void*>(&zero64) : &zero,
                                          result, result_, result, result_, &algorithm_.algo,
                                          context.scratch, algorithm_.workspaceSize, stream));
  }

  const Device device_;
  const MatMulProblem problem_;
  MatMulEpilogue epilogue_;
  const TensorSpec y_;
  const bool is_double_;
  cublasLtHandle_t handle_ = nullptr;
  Operation operation_;
  Layout first_, second_, result_;
  cublasLtMatmulHeuristicResult_t algorithm_ = {};
  std::optional<BiasTail> tail_;
};

COHORT_REGISTER_KERNEL("MatMul", kGpu, make_plain<MatMulKernel>);
COHORT_REGISTER_KERNEL("FusedMatMul", kGpu, make_plain<MatMulKernel>);

}  // namespace
}  // namespace cohort::cuda
