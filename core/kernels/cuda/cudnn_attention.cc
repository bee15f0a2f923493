#include <limits>

#include "core/kernels/common/scratch.h"
#include "core/kernels/cuda/cudnn_graph.h"
#include "core/kernels/cuda/cudnn_plans.h"
#include "core/kernels/cuda/plan_cache.h"

// Flash attention: graphs of the shape that cuDNN's engines know, products and what is done to
// scores between them, which are no tensors in memory. (The workspace of the gradient on Hopper has
// 16 bits for each, of as many heads at a time as AttentionProblem::chunks says.)
namespace cohort::cuda {
namespace {

using Dims = std::array<int64_t, 4>;

// A tensor of the graph, and what is made from its sizes.
struct Part {
  CudnnDescriptor tensor;
  Dims dims, strides;
};

Dims dense(const Dims& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}
// With the last two axes exchanged.
Dims turned(const Dims& of) { return {of[0], of[1], of[3], of[2]}; }

// What scores of keys become that a query does not see. Engines took the lowest number for it until
// 9.10, and take the infinite one since.
float unseen_score() {
  constexpr size_t kInfinite = 91000;
  return cudnnGetVersion() < kInfinite ? std::numeric_limits<float>::lowest()
                                       : -std::numeric_limits<float>::infinity();
}

// The forms of a gradient's graph that engines know: with delta, the sums of dout * out, in memory
// of its own between the two kernels that there are, and the mask over the differences of scores
// and lse; or, as engines had it at first, with delta between operations and the mask over the
// scores.
enum class GradientForm { kDeltaInMemory, kDeltaBetween };

// How far one batch, and one head, of a tensor in memory is from the next, in bytes.
struct HeadSteps {
  int64_t batch, head;
};

// The operations of one graph, over the heads of a chunk (AttentionProblem::chunks). Tensors in
// memory, and numbers, have the ids of their order.
class AttentionGraph {
 public:
  // Of attention, or of its gradient in the given form.
  AttentionGraph(const AttentionProblem& problem, GradientForm form)
      : p_(problem), chunks_(problem.chunks()), type_(cudnn_type(problem.dtype)) {
    if (!p_.gradient)
      attend();
    else if (form == GradientForm::kDeltaInMemory)
      differentiate_with_delta_in_memory();
    else
      differentiate_with_delta_between();
  }

  const std::vector<CudnnDescriptor>& operations() const { return operations_; }
  const std::vector<HeadSteps>& tensors() const { return tensors_; }
  // Of memory that the graph needs for itself, as the tensor kDelta.
  size_t delta_bytes() const { return delta_bytes_; }
  const std::vector<float>& floats() const { return floats_; }
  const std::vector<int32_t>& integers() const { return integers_; }
  // Of the numbers: floats from here on, then integers.
  static constexpr int64_t kFirstNumber = 100, kFirstInteger = 200, kDelta = 300;

 private:
  static constexpr int64_t kFirstVirtual = 1000;

  // --- Tensors

  Part memory(cudnnDataType_t type, const Dims& dims, const Dims& strides, HeadSteps steps) {
    const auto id = static_cast<int64_t>(tensors_.size());
    tensors_.push_back(steps);
    return {cudnn_tensor(id, type, dims, strides), dims, strides};
  }
  // [batch, positions, heads, size] in memory, described as [batch, heads, positions, size].
  Part of_positions(int64_t positions) {
    const int64_t row = p_.heads * p_.size;
    return memory(type_, {chunks_.batches, chunks_.heads, positions, p_.size},
                  {positions * row, p_.size, row, 1}, steps_of(positions));
  }
  // The same memory as [batch, heads, size, positions]. Only one description of it is in a graph.
  Part of_positions_turned(int64_t positions) {
    const int64_t row = p_.heads * p_.size;
    return memory(type_, {chunks_.batches, chunks_.heads, p_.size, positions},
                  {positions * row, p_.size, 1, row}, steps_of(positions));
  }
  HeadSteps steps_of(int64_t positions) const {
    const int64_t head = p_.size * static_cast<int64_t>(dtype_size(p_.dtype));
    return {positions * p_.heads * head, head};
  }
  Dims query_dims() const { return {chunks_.batches, chunks_.heads, p_.queries, 1}; }
  Part of_queries() {
    const int64_t head = p_.queries * static_cast<int64_t>(sizeof(float));
    return memory(CUDNN_DATA_FLOAT, query_dims(), dense(query_dims()), {p_.heads * head, head});
  }
  Part delta_in_memory() {
    const Dims dims = query_dims(), strides = dense(dims);
    delta_bytes_ = static_cast<size_t>(dims[0] * strides[0]) * sizeof(float);
    return {cudnn_tensor(kDelta, CUDNN_DATA_FLOAT, dims, strides), dims, strides};
  }
  Part between(cudnnDataType_t type, const Dims& dims, const Dims& strides) {
    return {cudnn_tensor(virtuals_++, type, dims, strides, CudnnTensorKind::kVirtual), dims,
            strides};
  }
  Part between(const Dims& dims) { return between(CUDNN_DATA_FLOAT, dims, dense(dims)); }
  Part number(float value) {
    floats_.push_back(value);
    return by_value(kFirstNumber + static_cast<int64_t>(floats_.size()) - 1, CUDNN_DATA_FLOAT);
  }
  Part number(int32_t value) {
    integers_.push_back(value);
    return by_value(kFirstInteger + static_cast<int64_t>(integers_.size()) - 1, CUDNN_DATA_INT32);
  }
  static Part by_value(int64_t id, cudnnDataType_t type) {
    constexpr Dims kOne = {1, 1, 1, 1};
    return {cudnn_tensor(id, type, kOne, kOne, CudnnTensorKind::kByValue), kOne, kOne};
  }
  Dims score_dims() const { return {chunks_.batches, chunks_.heads, p_.queries, p_.keys}; }

  // --- Operations

  void multiply(const Part& a, const Part& b, const Part& c) {
    CudnnDescriptor product(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT).finish();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a.tensor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b.tensor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, c.tensor)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, product);
    operations_.push_back(operation.finish());
  }

  void add_pointwise(CudnnDescriptor description, const Part& x, const Part* b, const Part* t,
                     const Part& y) {
    operations_.push_back(cudnn_pointwise_operation(std::move(description), x.tensor,
                                                    b == nullptr ? nullptr : &b->tensor,
                                                    t == nullptr ? nullptr : &t->tensor, y.tensor));
  }
  Part apply(cudnnPointwiseMode_t mode, const Part& x) {
    const Part y = between(x.dims);
    add_pointwise(cudnn_pointwise(mode, CUDNN_DATA_FLOAT), x, nullptr, nullptr, y);
    return y;
  }
  void apply(cudnnPointwiseMode_t mode, const Part& x, const Part& b, const Part& y) {
    add_pointwise(cudnn_pointwise(mode, CUDNN_DATA_FLOAT), x, &b, nullptr, y);
  }
  Part apply(cudnnPointwiseMode_t mode, const Part& x, const Part& b) {
    const Part y = between(x.dims);
    apply(mode, x, b, y);
    return y;
  }
  Part apply_to_integers(cudnnPointwiseMode_t mode, const Part& x, const Part& b) {
    const Part y = between(CUDNN_DATA_INT32, x.dims, x.strides);
    add_pointwise(cudnn_pointwise(mode, CUDNN_DATA_INT32), x, &b, nullptr, y);
    return y;
  }
  Part index_along(int64_t axis, const Part& like) {
    const Part y = between(CUDNN_DATA_INT32, like.dims, like.strides);
    CudnnDescriptor description = cudnn_pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32);
    description.set(CUDNN_ATTR_POINTWISE_AXIS, axis);
    add_pointwise(description, like, nullptr, nullptr, y);
    return y;
  }
  // Along the last axis.
  Part reduce(cudnnReduceTensorOp_t mode, const Part& x) {
    const Part y = between({x.dims[0], x.dims[1], x.dims[2], 1});
    CudnnDescriptor reduction(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    reduction.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &mode)
        .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
        .finish();
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x.tensor)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y.tensor)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, reduction);
    operations_.push_back(operation.finish());
    return y;
  }
  // With the last two axes exchanged.
  Part turn(const Part& x, cudnnDataType_t type) {
    const Part y = between(type, turned(x.dims), turned(x.strides));
    CudnnDescriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x.tensor)
        .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y.tensor);
    operations_.push_back(operation.finish());
    return y;
  }

  // --- The graphs

  // a b^T, for which b is turned already.
  Part scores(const Part& a, const Part& b_turned) {
    const Part products = between(score_dims());
    multiply(a, b_turned, products);
    return products;
  }
  Part scaled_scores(const Part& q, const Part& k_turned, const Part& scale) {
    return apply(CUDNN_POINTWISE_MUL, scores(q, k_turned), scale);
  }
  // unseen_score() where a query does not see the key.
  Part mask(const Part& scores) {
    if (!p_.causal) return scores;
    Part row = index_along(2, scores);
    if (p_.queries != p_.keys) {
      row = apply_to_integers(CUDNN_POINTWISE_ADD, row, number(static_cast<int32_t>(p_.keys)));
      row = apply_to_integers(CUDNN_POINTWISE_SUB, row, number(static_cast<int32_t>(p_.queries)));
    }
    const Part column = index_along(3, scores);
    const Part visible = between(CUDNN_DATA_BOOLEAN, scores.dims, scores.strides);
    add_pointwise(cudnn_pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN), row, &column,
                  nullptr, visible);
    const Part unseen = number(unseen_score());
    const Part masked = between(scores.dims);
    add_pointwise(cudnn_pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT), scores, &unseen,
                  &visible, masked);
    return masked;
  }

  // q, k, v -> out, lse.
  void attend() {
    const Part q = of_positions(p_.queries), k_turned = of_positions_turned(p_.keys),
               v = of_positions(p_.keys), out = of_positions(p_.queries), lse = of_queries();
    const Part s = mask(scaled_scores(q, k_turned, number(p_.scale)));
    const Part highest = reduce(CUDNN_REDUCE_TENSOR_MAX, s);
    const Part exponentials = apply(CUDNN_POINTWISE_EXP, apply(CUDNN_POINTWISE_SUB, s, highest));
    const Part sum = reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials);
    apply(CUDNN_POINTWISE_ADD, highest, apply(CUDNN_POINTWISE_LOG, sum), lse);
    const Part weights = between(type_, s.dims, s.strides);
    add_pointwise(cudnn_pointwise(CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT), exponentials, &sum,
                  nullptr, weights);
    multiply(weights, v, out);
  }

  // dout, q, k, v, out, lse -> dq, dk, dv. Without memory for sums of dq in float32, whose
  // additions would have no order (orders_sums).
  struct GradientParts {
    Part dout, q, k_turned, v_turned, out, lse, dq, dk, dv;
  };
  GradientParts gradient_parts() {
    return {of_positions(p_.queries),     of_positions(p_.queries), of_positions_turned(p_.keys),
            of_positions_turned(p_.keys), of_positions(p_.queries), of_queries(),
            of_positions(p_.queries),     of_positions(p_.keys),    of_positions(p_.keys)};
  }

  void differentiate_with_delta_in_memory() {
    const GradientParts g = gradient_parts();
    const Part scale = number(p_.scale), delta = delta_in_memory();
    apply(CUDNN_POINTWISE_MUL, sums_of_products(g.dout, g.out), number(1.0f), delta);
    const Part weights =
        apply(CUDNN_POINTWISE_EXP,
              mask(apply(CUDNN_POINTWISE_SUB, scaled_scores(g.q, g.k_turned, scale), g.lse)));
    multiply(turn(weights, type_), g.dout, g.dv);
    finish_gradient(g, weights, scores(g.dout, g.v_turned), delta, scale);
  }

  void differentiate_with_delta_between() {
    const GradientParts g = gradient_parts();
    const Part scale = number(p_.scale), one = number(1.0f);
    const Part delta = apply(CUDNN_POINTWISE_MUL, sums_of_products(g.dout, g.out), one);
    const Part weights =
        apply(CUDNN_POINTWISE_EXP,
              apply(CUDNN_POINTWISE_SUB, mask(scaled_scores(g.q, g.k_turned, scale)), g.lse));
    multiply(turn(weights, type_), g.dout, g.dv);
    const Part dweights = apply(CUDNN_POINTWISE_MUL, scores(g.dout, g.v_turned), one);
    finish_gradient(g, weights, dweights, delta, scale);
  }

  // Along the last axis.
  Part sums_of_products(const Part& a, const Part& b) {
    return reduce(CUDNN_REDUCE_TENSOR_ADD, apply(CUDNN_POINTWISE_MUL, a, b));
  }

  // The gradients of scores, and of the products that they are: dk and dq. Engines know the product
  // for dq with both of its operands in float32, and those for dk and dv with both in 16 bits.
  void finish_gradient(const GradientParts& g, const Part& weights, const Part& dweights,
                       const Part& delta, const Part& scale) {
    const Part difference = apply(CUDNN_POINTWISE_SUB, dweights, delta);
    const Part dscores =
        apply(CUDNN_POINTWISE_MUL, apply(CUDNN_POINTWISE_MUL, difference, weights), scale);
    multiply(turn(dscores, type_), g.q, g.dk);
    multiply(dscores, turn(g.k_turned, CUDNN_DATA_FLOAT), g.dq);
  }

  const AttentionProblem p_;
  const AttentionChunks chunks_;
  const cudnnDataType_t type_;
  std::vector<CudnnDescriptor> operations_;
  std::vector<HeadSteps> tensors_;
  int64_t virtuals_ = kFirstVirtual;
  size_t delta_bytes_ = 0;
  std::vector<float> floats_;
  std::vector<int32_t> integers_;
};

// Whether the graph's form alone makes cuDNN add up in one order, which its engines' notes do not
// tell: that of the gradient does on Hopper. Other cards are not known to.
bool orders_sums(const AttentionProblem& problem, const Cudnn& cudnn) {
  constexpr int kHopper = 9;
  return problem.gradient && cudnn.capability == kHopper;
}

class CudnnAttentionPlan final : public LibraryPlan {
 public:
  CudnnAttentionPlan(const AttentionProblem& problem, GradientForm form, Cudnn& cudnn)
      : CudnnAttentionPlan(problem, AttentionGraph(problem, form), cudnn,
                           {.ordered = orders_sums(problem, cudnn)}) {}

  size_t workspace_bytes() const override { return delta_offset() + delta_bytes_; }
  void run(Stream& stream, std::span<void* const> tensors, void* workspace) override {
    COHORT_CHECK(tensors.size() == tensors_.size());
    for (int64_t chunk = 0; chunk < chunks_.count; ++chunk)
      run_from(chunk * chunks_.items(), stream, tensors, workspace);
  }

 private:
  CudnnAttentionPlan(const AttentionProblem& problem, const AttentionGraph& graph, Cudnn& cudnn,
                     const EngineRules& rules)
      : chunks_(problem.chunks()),
        heads_(problem.heads),
        tensors_(graph.tensors()),
        delta_bytes_(graph.delta_bytes()),
        floats_(graph.floats()),
        integers_(graph.integers()),
        plan_(cudnn, graph.operations(), rules) {}

  // The chunk whose first head is `head` of those of all batches.
  void run_from(int64_t head, Stream& stream, std::span<void* const> tensors, void* workspace) {
    std::vector<int64_t> ids;
    std::vector<void*> pointers;
    const auto add = [&](int64_t id, void* pointer) {
      ids.push_back(id);
      pointers.push_back(pointer);
    };
    for (size_t i = 0; i < tensors.size(); ++i)
      add(static_cast<int64_t>(i), static_cast<char*>(tensors[i]) +
                                       head / heads_ * tensors_[i].batch +
                                       head % heads_ * tensors_[i].head);
    for (size_t i = 0; i < floats_.size(); ++i)
      add(AttentionGraph::kFirstNumber + static_cast<int64_t>(i), &floats_[i]);
    for (size_t i = 0; i < integers_.size(); ++i)
      add(AttentionGraph::kFirstInteger + static_cast<int64_t>(i), &integers_[i]);
    if (delta_bytes_ > 0)
      add(AttentionGraph::kDelta, static_cast<char*>(workspace) + delta_offset());
    plan_.run(stream, ids, pointers, workspace);
  }

  // In the workspace, behind cuDNN's own.
  size_t delta_offset() const { return scratch_size(plan_.workspace_bytes()); }

  AttentionChunks chunks_;
  int64_t heads_;  // of a batch
  std::vector<HeadSteps> tensors_;
  size_t delta_bytes_;
  std::vector<float> floats_;  // that are given by value
  std::vector<int32_t> integers_;
  CudnnPlan plan_;
};

std::shared_ptr<LibraryPlan> make_plan(const AttentionProblem& problem, Device device) {
  const std::string what = str(problem.gradient ? "the gradient of " : "", "attention over ",
                               problem.keys, " keys in heads of ", problem.size, ", ",
                               problem.dtype, ", is done without cuDNN, with scores in memory");
  return made_by_cudnn(device, what, [&](Cudnn& cudnn) { return plan_attention(problem, cudnn); });
}

}  // namespace

std::shared_ptr<LibraryPlan> plan_attention(const AttentionProblem& problem, Cudnn& cudnn) {
  if (!problem.is_right_in_cudnn(cudnnGetVersion()))
    fail(Code::kUnimplemented, "cuDNN of version ", cudnnGetVersion(), " computes it wrongly");
  if (!problem.gradient)
    return std::make_shared<CudnnAttentionPlan>(problem, GradientForm{}, cudnn);
  try {
    return std::make_shared<CudnnAttentionPlan>(problem, GradientForm::kDeltaInMemory, cudnn);
  } catch (const Error& error) {
    if (error.code() != Code::kUnimplemented) throw;
    return std::make_shared<CudnnAttentionPlan>(problem, GradientForm::kDeltaBetween, cudnn);
  }
}

std::shared_ptr<LibraryPlan> find_attention_plan(const AttentionProblem& problem, Device device) {
  static auto* cache = new PlanCache<AttentionProblem, LibraryPlan>();
  return cache->find_or_make(device, problem, [&] { return make_plan(problem, device); });
}

}  // namespace cohort::cuda
