#include <optional>

#include "core/kernels/common/scratch.h"
#include "core/kernels/common/strides.h"
#include "core/kernels/common/tf32.h"
#include "core/kernels/cuda/bias_tail.h"
#include "core/kernels/cuda/box_copy.h"
#include "core/kernels/cuda/conv_problem.h"
#include "core/kernels/cuda/fill.h"
#include "core/kernels/cuda/floating_kernel.h"

// Conv2D, FusedConv2D and their gradients: by the library where it has a plan, else as plain loops,
// with a thread for each element of y or dx and a team for each of the filter's.
namespace cohort::cuda {
namespace {

// The output pixel whose tap `k` is input pixel `in` along one axis, or -1.
COHORT_DEVICE inline int64_t output_of(int64_t in, int64_t k, int64_t pad, int64_t stride,
                                       int64_t dilation, int64_t outputs) {
  const int64_t first = in + pad - k * dilation;
  if (first < 0 || first % stride != 0) return -1;
  return first / stride < outputs ? first / stride : -1;
}

template <typename T>
void convolve(const KernelContext& context, const ConvSizes s) {
  const T *x = context.input<T>(0), *filter = context.input<T>(1);
  T* y = context.output<T>(0);
  for_each_element(
      *context.stream, s.batch * s.out_h * s.out_w * s.out_c, [=] COHORT_DEVICE(int64_t i) {
        const int64_t o = i % s.out_c, column = i / s.out_c % s.out_w;
        const int64_t row = i / s.out_c / s.out_w % s.out_h,
                      image = i / s.out_c / s.out_w / s.out_h;
        const int64_t channel = o / s.group_out() * s.group_in();
        T sum = 0;
        for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
          const int64_t h = row * s.stride_h - s.top + kh * s.dilation_h;
          if (h < 0 || h >= s.in_h) continue;
          for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const int64_t w = column * s.stride_w - s.left + kw * s.dilation_w;
            if (w < 0 || w >= s.in_w) continue;
            const T* from = x + ((image * s.in_h + h) * s.in_w + w) * s.in_c + channel;
            const T* tap = filter + (kh * s.kernel_w + kw) * s.group_in() * s.out_c + o;
            for (int64_t c = 0; c < s.group_in(); ++c) sum += from[c] * tap[c * s.out_c];
          }
        }
        y[i] = sum;
      });
}

template <typename T>
void differentiate_input(const KernelContext& context, const ConvSizes s) {
  const T *dy = context.input<T>(0), *filter = context.input<T>(1);
  T* dx = context.output<T>(0);
  for_each_element(
      *context.stream, s.batch * s.in_h * s.in_w * s.in_c, [=] COHORT_DEVICE(int64_t i) {
        const int64_t c = i % s.in_c, w = i / s.in_c % s.in_w;
        const int64_t h = i / s.in_c / s.in_w % s.in_h, image = i / s.in_c / s.in_w / s.in_h;
        const int64_t first = c / s.group_in() * s.group_out();
        T sum = 0;
        for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
          const int64_t row = output_of(h, kh, s.top, s.stride_h, s.dilation_h, s.out_h);
          if (row < 0) continue;
          for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
            const int64_t column = output_of(w, kw, s.left, s.stride_w, s.dilation_w, s.out_w);
            if (column < 0) continue;
            const T* slope = dy + ((image * s.out_h + row) * s.out_w + column) * s.out_c + first;
            const T* tap = filter +
                           ((kh * s.kernel_w + kw) * s.group_in() + c % s.group_in()) * s.out_c +
                           first;
            for (int64_t o = 0; o < s.group_out(); ++o) sum += slope[o] * tap[o];
          }
        }
        dx[i] = sum;
      });
}

template <typename T>
void differentiate_filter(const KernelContext& context, const ConvSizes s) {
  const T *x = context.input<T>(0), *dy = context.input<T>(1);
  T* dfilter = context.output<T>(0);
  const int64_t pixels = s.batch * s.out_h * s.out_w;
  for_each_row(*context.stream, s.kernel_h * s.kernel_w * s.group_in() * s.out_c, pixels,
               [=] COHORT_DEVICE(const Team& team, int64_t i) {
                 const int64_t o = i % s.out_c, tap = i / s.out_c / s.group_in();
                 const int64_t c = o / s.group_out() * s.group_in() + i / s.out_c % s.group_in();
                 const int64_t kh = tap / s.kernel_w, kw = tap % s.kernel_w;
                 T sum = 0;
                 for (int64_t p = team.rank(); p < pixels; p += team.size()) {
                   const int64_t h = p / s.out_w % s.out_h * s.stride_h - s.top + kh * s.dilation_h;
                   const int64_t w = p % s.out_w * s.stride_w - s.left + kw * s.dilation_w;
                   if (h < 0 || h >= s.in_h || w < 0 || w >= s.in_w) continue;
                   const int64_t image = p / s.out_w / s.out_h;
                   sum += x[((image * s.in_h + h) * s.in_w + w) * s.in_c + c] * dy[p * s.out_c + o];
                 }
                 sum = team.sum(sum);
                 if (team.rank() == 0) dfilter[i] = sum;
               });
}

// One of the three ops: what it computes, and where its tensors are.
struct Conv {
  static constexpr ConvResult kResult = ConvResult::kY;
  static ConvSizes sizes(const KernelSpec& spec) { return conv_sizes(spec); }
  static std::array<DType, 3> dtypes(const KernelSpec& spec) {
    return {spec.inputs[0].dtype, spec.inputs[1].dtype, spec.outputs[0].dtype};
  }
  template <typename T>
  static void run(const KernelContext& context, const ConvSizes& s) {
    convolve<T>(context, s);
  }
};
struct GradInput {
  static constexpr ConvResult kResult = ConvResult::kX;
  static ConvSizes sizes(const KernelSpec& spec) { return conv_grad_input_sizes(spec); }
  static std::array<DType, 3> dtypes(const KernelSpec& spec) {
    return {spec.outputs[0].dtype, spec.inputs[1].dtype, spec.inputs[0].dtype};
  }
  template <typename T>
  static void run(const KernelContext& context, const ConvSizes& s) {
    differentiate_input<T>(context, s);
  }
};
struct GradFilter {
  static constexpr ConvResult kResult = ConvResult::kFilter;
  static ConvSizes sizes(const KernelSpec& spec) { return conv_grad_filter_sizes(spec); }
  static std::array<DType, 3> dtypes(const KernelSpec& spec) {
    return {spec.inputs[0].dtype, spec.outputs[0].dtype, spec.inputs[1].dtype};
  }
  template <typename T>
  static void run(const KernelContext& context, const ConvSizes& s) {
    differentiate_filter<T>(context, s);
  }
};

template <typename Op, typename T>
class DirectConv final : public Kernel {
 public:
  explicit DirectConv(const KernelSpec& spec) : sizes_(Op::sizes(spec)) {
    if (spec.inputs.size() == 3) tail_.emplace(spec);
  }
  size_t scratch_bytes() const override { return tail_ ? tail_->scratch_bytes() : 0; }
  void run(const KernelContext& context) override {
    Op::template run<T>(context, sizes_);
    if (tail_) tail_->run(context, context.scratch);
  }

 private:
  const ConvSizes sizes_;
  std::optional<BiasTail> tail_;
};

// x with its border of zeros, and without; the filter as cuDNN and as ops have it.
class Relayout {
 public:
  Relayout(const ConvSizes& s, const ConvTask& task)
      : element_bytes_x_(dtype_size(task.problem.x.dtype)),
        element_bytes_filter_(dtype_size(task.problem.filter.dtype)),
        bordered_bytes_(task.problem.x.bytes()),
        row_bytes_(element_bytes_x_ * static_cast<size_t>(s.in_c)),
        offset_(static_cast<size_t>(task.top * task.problem.x.dims[3] + task.left) * row_bytes_),
        to_border_({s.batch, s.in_h, s.in_w, s.in_c},
                   dense_strides({s.batch, s.in_h, s.in_w, s.in_c}), strides_of(task)),
        from_border_({s.batch, s.in_h, s.in_w, s.in_c}, strides_of(task),
                     dense_strides({s.batch, s.in_h, s.in_w, s.in_c})),
        to_library_({s.out_c, s.kernel_h, s.kernel_w, s.group_in()}, ours(s),
                    dense_strides({s.out_c, s.kernel_h, s.kernel_w, s.group_in()})),
        from_library_({s.kernel_h, s.kernel_w, s.group_in(), s.out_c}, theirs(s),
                      dense_strides({s.kernel_h, s.kernel_w, s.group_in(), s.out_c})) {}

  void add_border(Stream& stream, const void* x, void* bordered) const {
    // Scratch memory comes in multiples of more than a word.
    constexpr size_t kWord = sizeof(uint64_t);
    fill(stream, static_cast<uint64_t*>(bordered),
         static_cast<int64_t>((bordered_bytes_ + kWord - 1) / kWord), uint64_t{0});
    copy_box(stream, to_border_, x, static_cast<char*>(bordered) + offset_, element_bytes_x_);
  }
  void take_border_off(Stream& stream, const void* bordered, void* x) const {
    copy_box(stream, from_border_, static_cast<const char*>(bordered) + offset_, x,
             element_bytes_x_);
  }
  void filter_to_library(Stream& stream, const void* filter, void* theirs) const {
    copy_box(stream, to_library_, filter, theirs, element_bytes_filter_);
  }
  void filter_from_library(Stream& stream, const void* theirs, void* filter) const {
    copy_box(stream, from_library_, theirs, filter, element_bytes_filter_);
  }

 private:
  // Of x within the one with a border.
  static std::vector<int64_t> strides_of(const ConvTask& task) {
    const auto& s = task.problem.x.strides;
    return {s[0], s[2], s[3], s[1]};
  }
  // Of the axes [out, height, width, in] in HWIO, and of [height, width, in, out] in OHWI.
  static std::vector<int64_t> ours(const ConvSizes& s) {
    return {1, s.kernel_w * s.group_in() * s.out_c, s.group_in() * s.out_c, s.out_c};
  }
  static std::vector<int64_t> theirs(const ConvSizes& s) {
    return {s.kernel_w * s.group_in(), s.group_in(), 1, s.kernel_h * s.kernel_w * s.group_in()};
  }

  size_t element_bytes_x_, element_bytes_filter_, bordered_bytes_, row_bytes_, offset_;
  Box to_border_, from_border_, to_library_, from_library_;
};

// By the library's plan, between changes of layout in scratch memory. `has_epilogue`: the plan does
// what follows the product as well.
template <typename Op>
class LibraryConv final : public Kernel {
 public:
  LibraryConv(const KernelSpec& spec, const ConvTask& task, std::shared_ptr<ConvPlan> plan,
              bool has_epilogue)
      : relayout_(Op::sizes(spec), task),
        has_border_(task.has_border),
        has_epilogue_(has_epilogue),
        plan_(std::move(plan)) {
    if (has_border_) x_ = layout_.add(task.problem.x.bytes());
    filter_ = layout_.add(task.problem.filter.bytes());
    workspace_ = layout_.add(plan_->workspace_bytes());
    if (spec.inputs.size() != 3 || has_epilogue_) return;
    tail_.emplace(spec);
    tail_scratch_ = layout_.add(tail_->scratch_bytes());
  }

  size_t scratch_bytes() const override { return layout_.bytes(); }

  void run(const KernelContext& context) override {
    Stream& stream = *context.stream;
    void* filter = scratch_at<void>(context, filter_);
    if constexpr (Op::kResult == ConvResult::kY) {
      relayout_.filter_to_library(stream, context.inputs[1], filter);
      void* bias = has_epilogue_ ? input(context, 2) : nullptr;
      plan_->run(stream, {bordered(context), filter, context.outputs[0], bias}, workspace(context));
      if (tail_) tail_->run(context, scratch_at<void>(context, tail_scratch_));
    } else if constexpr (Op::kResult == ConvResult::kX) {
      void* dx = has_border_ ? scratch_at<void>(context, x_) : context.outputs[0];
      relayout_.filter_to_library(stream, context.inputs[1], filter);
      plan_->run(stream, {dx, filter, input(context, 0)}, workspace(context));
      if (has_border_) relayout_.take_border_off(stream, dx, context.outputs[0]);
    } else {
      plan_->run(stream, {bordered(context), filter, input(context, 1)}, workspace(context));
      relayout_.filter_from_library(stream, filter, context.outputs[0]);
    }
  }

 private:
  // Only read: libraries take all pointers alike.
  static void* input(const KernelContext& context, int i) {
    return const_cast<void*>(context.inputs[static_cast<size_t>(i)]);
  }
  void* workspace(const KernelContext& context) const {
    return scratch_at<void>(context, workspace_);
  }
  // x, input 0.
  void* bordered(const KernelContext& context) const {
    if (!has_border_) return input(context, 0);
    void* x = scratch_at<void>(context, x_);
    relayout_.add_border(*context.stream, context.inputs[0], x);
    return x;
  }

  Relayout relayout_;
  bool has_border_, has_epilogue_;
  std::shared_ptr<ConvPlan> plan_;
  ScratchLayout layout_;
  size_t x_ = 0, filter_ = 0, workspace_ = 0, tail_scratch_ = 0;
  std::optional<BiasTail> tail_;
};

// What the library refuses in 16 bits it may take in float32, and loops take all the rest.
template <typename Op>
std::unique_ptr<Kernel> make_conv(const KernelSpec& spec) {
  const ConvTask task(Op::sizes(spec), Op::kResult, Op::dtypes(spec), is_tf32_allowed());
  if (!task.is_empty) {
    if (const auto whole = with_epilogue(task.problem, spec))
      if (auto plan = find_conv_plan(*whole, spec.device))
        return std::make_unique<LibraryConv<Op>>(spec, task, std::move(plan), true);
    if (auto plan = find_conv_plan(task.problem, spec.device))
      return std::make_unique<LibraryConv<Op>>(spec, task, std::move(plan), false);
  }
  if (has_16_bit(spec)) return make_widened(spec, make_conv<Op>, kGpuHalfConversion);
  if (spec.inputs[0].dtype == DType::kFloat64)
    return std::make_unique<DirectConv<Op, double>>(spec);
  return std::make_unique<DirectConv<Op, float>>(spec);
}

COHORT_REGISTER_KERNEL("Conv2D", kGpu, make_conv<Conv>);
COHORT_REGISTER_KERNEL("FusedConv2D", kGpu, make_conv<Conv>);
COHORT_REGISTER_KERNEL("Conv2DGradInput", kGpu, make_conv<GradInput>);
COHORT_REGISTER_KERNEL("Conv2DGradFilter", kGpu, make_conv<GradFilter>);

}  // namespace
}  // namespace cohort::cuda
