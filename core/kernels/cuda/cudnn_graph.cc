#include "core/kernels/cuda/cudnn_graph.h"

#include <map>
#include <optional>

#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#include "core/device/cuda/gpus.h"
#include "core/kernels/cuda/plan_choice.h"

namespace cohort::cuda {
namespace {

static_assert(code_of_cudnn(CUDNN_STATUS_NOT_SUPPORTED) == Code::kUnimplemented);
static_assert(code_of_cudnn(CUDNN_STATUS_BAD_PARAM) == Code::kUnimplemented);
static_assert(code_of_cudnn(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) ==
              Code::kResourceExhausted);
static_assert(code_of_cudnn(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED) ==
              Code::kResourceExhausted);
static_assert(is_failure_of_cuda(CUDNN_STATUS_EXECUTION_FAILED));

std::string words_of(cudnnStatus_t status, const char* call) {
  char detail[512] = "";
  cudnnGetLastErrorString(detail, sizeof(detail));
  return str(call, ": ", cudnnGetErrorString(status), detail[0] == '\0' ? "" : ": ", detail);
}

// Of an attribute whose value is descriptions that cuDNN fills in.
int64_t get(const CudnnDescriptor& from, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t room, void* values) {
  int64_t count = 0;
  COHORT_CUDNN(cudnnBackendGetAttribute(from.get(), name, type, room, &count, values));
  return count;
}

// The engines that cuDNN proposes, best first; none where it does not in this mode.
std::vector<CudnnDescriptor> propose(const Cudnn& cudnn, const CudnnDescriptor& graph,
                                     cudnnBackendHeurMode_t mode, PlanRefusals& refusals) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (cudnn.properties) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *cudnn.properties);
  const cudnnStatus_t status = cudnnBackendFinalize(heuristic.get());
  if (status != CUDNN_STATUS_SUCCESS) {
    refusals.add(status, words_of(status, "cudnnBackendFinalize of a heuristic"));
    return {};
  }
  const int64_t count =
      get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> room;
  for (int64_t i = 0; i < count; ++i) {
    configurations.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    room.push_back(configurations.back().get());
  }
  const int64_t got = get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          count, room.data());
  configurations.erase(configurations.begin() + std::min(got, count), configurations.end());
  return configurations;
}

EngineNotes notes_of(const CudnnDescriptor& configuration) {
  const CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t room = engine.get();
  get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &room);
  cudnnBackendNumericalNote_t found[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  const int64_t count = get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                            CUDNN_NUMERICAL_NOTE_TYPE_COUNT, found);
  EngineNotes notes;
  for (int64_t i = 0; i < count; ++i) {
    notes.tensor_cores |= found[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    notes.narrows_operands |= found[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    notes.narrow_sums |= found[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    notes.nondeterministic |= found[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
  }
  return notes;
}

// The plan of one engine; none where it turns out that it cannot, or cannot be compiled, whatever
// cuDNN calls that: another engine may.
std::optional<CudnnDescriptor> plan_of(const Cudnn& cudnn, const CudnnDescriptor& configuration,
                                       PlanRefusals& refusals) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (cudnn.properties)
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *cudnn.properties);
  else
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, cudnn.handle);
  const cudnnStatus_t status = cudnnBackendFinalize(plan.get());
  if (status == CUDNN_STATUS_SUCCESS) return plan;
  refusals.add(status, words_of(status, "cudnnBackendFinalize of a plan"));
  return std::nullopt;
}

size_t workspace_of(const CudnnDescriptor& plan) {
  int64_t bytes = 0;
  get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &bytes);
  return static_cast<size_t>(bytes);
}

CudnnDescriptor choose_plan(const Cudnn& cudnn, const std::vector<CudnnDescriptor>& operations,
                            const EngineRules& rules) {
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  if (!cudnn.properties) graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, cudnn.handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).finish();
  PlanChoice<CudnnDescriptor> choice;
  PlanRefusals refusals;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const CudnnDescriptor& configuration : propose(cudnn, graph, mode, refusals)) {
      if (!rules.allow(notes_of(configuration))) continue;
      const auto plan = plan_of(cudnn, configuration, refusals);
      if (plan && choice.offer(*plan, workspace_of(*plan))) return *plan;
    }
  if (choice.chosen()) return *choice.chosen();
  refusals.tell();
}

}  // namespace

void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  fail(code_of_cudnn(status), "cuDNN: ", words_of(status, call));
}

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return CUDNN_DATA_FLOAT;
    case DType::kFloat64:
      return CUDNN_DATA_DOUBLE;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    default:
      fail(Code::kUnimplemented, "cuDNN is used for floating types, not for ", dtype);
  }
}

Cudnn& Cudnn::of(Device device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, std::unique_ptr<Cudnn>>;
  enter_gpu(device);
  const std::lock_guard lock(mutex);
  auto& cudnn = (*all)[device.index];
  if (cudnn == nullptr) {
    auto made = std::make_unique<Cudnn>();
    made->device = device;
    COHORT_CUDA(device, cudaDeviceGetAttribute(&made->capability, cudaDevAttrComputeCapabilityMajor,
                                               Gpus::instance().use(device).card()));
    COHORT_CUDNN(cudnnCreate(&made->handle));
    cudnn = std::move(made);
  }
  return *cudnn;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type)
    : parts_(std::make_shared<std::vector<CudnnDescriptor>>()) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  COHORT_CUDNN(cudnnBackendCreateDescriptor(type, &descriptor));
  descriptor_.reset(descriptor, [](void* d) { cudnnBackendDestroyDescriptor(d); });
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, int64_t count,
                                      const void* values) {
  COHORT_CUDNN(cudnnBackendSetAttribute(get(), name, type, count, values));
  return *this;
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                                      std::span<const int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, float value) {
  return set(name, CUDNN_TYPE_FLOAT, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnHandle_t value) {
  return set(name, CUDNN_TYPE_HANDLE, 1, &value);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                                      const CudnnDescriptor& value) {
  return set(name, std::vector<CudnnDescriptor>{value});
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                                      std::vector<CudnnDescriptor> values) {
  std::vector<cudnnBackendDescriptor_t> pointers;
  for (const CudnnDescriptor& value : values) pointers.push_back(value.get());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(pointers.size()), pointers.data());
  parts_->insert(parts_->end(), values.begin(), values.end());
  return *this;
}

CudnnDescriptor& CudnnDescriptor::finish() {
  COHORT_CUDNN(cudnnBackendFinalize(get()));
  return *this;
}

CudnnDescriptor cudnn_tensor(int64_t id, cudnnDataType_t type, std::span<const int64_t> dims,
                             std::span<const int64_t> strides, CudnnTensorKind kind) {
  constexpr int64_t kAlignment = 16;
  CudnnDescriptor tensor(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kAlignment);
  if (kind == CudnnTensorKind::kVirtual) tensor.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  if (kind == CudnnTensorKind::kByValue) tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, true);
  return tensor.finish();
}

CudnnDescriptor cudnn_pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t math) {
  CudnnDescriptor description(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  description.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, math);
  return description;
}

CudnnDescriptor cudnn_pointwise_operation(CudnnDescriptor description, const CudnnDescriptor& x,
                                          const CudnnDescriptor* b, const CudnnDescriptor* t,
                                          const CudnnDescriptor& y) {
  CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, description.finish())
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
  if (t != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, *t);
  return operation.finish();
}

CudnnPlan::CudnnPlan(Cudnn& cudnn, const std::vector<CudnnDescriptor>& operations,
                     const EngineRules& rules)
    : cudnn_(cudnn),
      plan_([&] {
        const std::lock_guard lock(cudnn_.mutex);
        // The stream that the handle was last used with may have ended.
        if (cudnn_.handle != nullptr) COHORT_CUDNN(cudnnSetStream(cudnn_.handle, nullptr));
        return choose_plan(cudnn_, operations, rules);
      }()),
      workspace_bytes_(workspace_of(plan_)) {}

void CudnnPlan::run(Stream& stream, std::span<const int64_t> ids, std::span<void* const> pointers,
                    void* workspace) const {
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           static_cast<int64_t>(pointers.size()), pointers.data())
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace)
      .finish();
  enter_gpu(cudnn_.device);
  const std::lock_guard lock(cudnn_.mutex);
  COHORT_CUDNN(cudnnSetStream(cudnn_.handle, cuda_stream(stream)));
  COHORT_CUDNN(cudnnBackendExecute(cudnn_.handle, plan_.get(), pack.get()));
}

}  // namespace cohort::cuda
