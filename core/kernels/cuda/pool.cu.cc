#include "core/kernels/common/pool_sizes.h"
#include "core/kernels/cuda/floating_kernel.h"
#include "core/kernels/cuda/launch.h"

// MaxPool2D, AvgPool2D and their gradients, a thread for each element of the result. A gradient
// gathers from the windows over its element, so that nothing is added by several threads. S is the
// type of images in memory.
namespace cohort::cuda {
namespace {

int64_t inputs_of(const PoolSizes& s) { return s.batch * s.in_h * s.in_w * s.channels; }
int64_t outputs_of(const PoolSizes& s) { return s.batch * s.out_h * s.out_w * s.channels; }

// An element of an image: [image, row, column, channel].
struct Pixel {
  int64_t image, row, column, channel;

  COHORT_DEVICE Pixel(int64_t i, int64_t height, int64_t width, int64_t channels)
      : image(i / channels / width / height),
        row(i / channels / width % height),
        column(i / channels % width),
        channel(i % channels) {}
};

// Positions [begin, end) along one axis.
struct Range {
  int64_t begin, end;
  COHORT_DEVICE int64_t size() const { return end - begin; }
};

// The inputs under the window of an output.
COHORT_DEVICE inline Range window_of(int64_t out, int64_t stride, int64_t pad, int64_t window,
                                     int64_t extent) {
  const int64_t first = out * stride - pad, last = first + window;
  return {first > 0 ? first : 0, last < extent ? last : extent};
}

// The outputs whose window an input is under.
COHORT_DEVICE inline Range windows_over(int64_t in, int64_t stride, int64_t pad, int64_t window,
                                        int64_t outputs) {
  const int64_t first = in + pad - window + 1;  // of the padded input, where such a window begins
  const int64_t begin = first > 0 ? (first + stride - 1) / stride : 0;
  const int64_t end = (in + pad) / stride + 1;
  return {begin, end < outputs ? end : outputs};
}

// Calls visit(offset of the element of x) for the elements under the window of output (row,
// column), in the order of the image.
template <typename F>
COHORT_DEVICE inline int64_t for_each_in_window(const PoolSizes& s, const Pixel& of, int64_t row,
                                                int64_t column, F visit) {
  const Range h = window_of(row, s.stride_h, s.top, s.window_h, s.in_h),
              w = window_of(column, s.stride_w, s.left, s.window_w, s.in_w);
  for (int64_t r = h.begin; r < h.end; ++r)
    for (int64_t c = w.begin; c < w.end; ++c)
      visit(((of.image * s.in_h + r) * s.in_w + c) * s.channels + of.channel);
  return h.size() * w.size();
}

// Calls visit(offset of the element of y, row, column) for the outputs whose window `in` is under.
template <typename F>
COHORT_DEVICE inline void for_each_window_over(const PoolSizes& s, const Pixel& in, F visit) {
  const Range h = windows_over(in.row, s.stride_h, s.top, s.window_h, s.out_h),
              w = windows_over(in.column, s.stride_w, s.left, s.window_w, s.out_w);
  for (int64_t r = h.begin; r < h.end; ++r)
    for (int64_t c = w.begin; c < w.end; ++c)
      visit(((in.image * s.out_h + r) * s.out_w + c) * s.channels + in.channel, r, c);
}

// NaN wins, so that it is seen.
template <typename T>
COHORT_DEVICE inline bool beats(T value, T highest) {
  return value > highest || value != value;
}

template <typename S>
void max_pool(const KernelContext& context, const PoolSizes s) {
  using T = Computed<S>;
  const S* x = context.input<S>(0);
  S* y = context.output<S>(0);
  for_each_element(*context.stream, outputs_of(s), [=] COHORT_DEVICE(int64_t i) {
    const Pixel out(i, s.out_h, s.out_w, s.channels);
    T highest = 0;
    bool any = false;
    for_each_in_window(s, out, out.row, out.column, [&](int64_t in) {
      const T value = convert<T>(x[in]);
      if (!any || beats(value, highest)) highest = value;
      any = true;
    });
    y[i] = convert<S>(highest);
  });
}

template <typename S>
void average_pool(const KernelContext& context, const PoolSizes s) {
  using T = Computed<S>;
  const S* x = context.input<S>(0);
  S* y = context.output<S>(0);
  for_each_element(*context.stream, outputs_of(s), [=] COHORT_DEVICE(int64_t i) {
    const Pixel out(i, s.out_h, s.out_w, s.channels);
    T sum = 0;
    const int64_t count = for_each_in_window(s, out, out.row, out.column,
                                             [&](int64_t in) { sum += convert<T>(x[in]); });
    y[i] = convert<S>(sum / static_cast<T>(count));
  });
}

// Of a window, the first element equal to its maximum takes the gradient.
template <typename S>
void max_pool_grad(const KernelContext& context, const PoolSizes s) {
  using T = Computed<S>;
  const S *dy = context.input<S>(0), *x = context.input<S>(1), *y = context.input<S>(2);
  S* dx = context.output<S>(0);
  for_each_element(*context.stream, inputs_of(s), [=] COHORT_DEVICE(int64_t i) {
    const Pixel in(i, s.in_h, s.in_w, s.channels);
    T sum = 0;
    for_each_window_over(s, in, [&](int64_t out, int64_t row, int64_t column) {
      int64_t taker = -1;
      for_each_in_window(s, in, row, column, [&](int64_t other) {
        const T value = convert<T>(x[other]);
        if (taker < 0 && (value == convert<T>(y[out]) || value != value)) taker = other;
      });
      if (taker == i) sum += convert<T>(dy[out]);
    });
    dx[i] = convert<S>(sum);
  });
}

template <typename S>
void average_pool_grad(const KernelContext& context, const PoolSizes s) {
  using T = Computed<S>;
  const S* dy = context.input<S>(0);
  S* dx = context.output<S>(0);
  for_each_element(*context.stream, inputs_of(s), [=] COHORT_DEVICE(int64_t i) {
    const Pixel in(i, s.in_h, s.in_w, s.channels);
    T sum = 0;
    for_each_window_over(s, in, [&](int64_t out, int64_t row, int64_t column) {
      const int64_t count = window_of(row, s.stride_h, s.top, s.window_h, s.in_h).size() *
                            window_of(column, s.stride_w, s.left, s.window_w, s.in_w).size();
      sum += convert<T>(dy[out]) * (T(1) / static_cast<T>(count));
    });
    dx[i] = convert<S>(sum);
  });
}

// The kernel that `pool` is, over the sizes that `sizes` reads from a spec.
template <PoolSizes (*sizes)(const KernelSpec&), void (*pool)(const KernelContext&, PoolSizes)>
class Pool final : public Kernel {
 public:
  explicit Pool(const KernelSpec& spec) : sizes_(sizes(spec)) {}
  void run(const KernelContext& context) override { pool(context, sizes_); }

 private:
  const PoolSizes sizes_;
};

template <typename S>
using MaxPool = Pool<pool_sizes, max_pool<S>>;
template <typename S>
using MaxPoolGrad = Pool<max_pool_grad_sizes, max_pool_grad<S>>;
template <typename S>
using AvgPool = Pool<pool_sizes, average_pool<S>>;
template <typename S>
using AvgPoolGrad = Pool<average_pool_grad_sizes, average_pool_grad<S>>;

COHORT_REGISTER_KERNEL("MaxPool2D", kGpu, make_stored<MaxPool>);
COHORT_REGISTER_KERNEL("MaxPool2DGrad", kGpu, make_stored<MaxPoolGrad>);
COHORT_REGISTER_KERNEL("AvgPool2D", kGpu, make_stored<AvgPool>);
COHORT_REGISTER_KERNEL("AvgPool2DGrad", kGpu, make_stored<AvgPoolGrad>);

}  // namespace
}  // namespace cohort::cuda
