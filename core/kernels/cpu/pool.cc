#include <algorithm>

#include "core/base/threads.h"
#include "core/kernels/common/functors.h"
#include "core/kernels/common/pool_sizes.h"
#include "core/kernels/cpu/floating_kernel.h"

// MaxPool2D, AvgPool2D and their gradients: loops over windows, vectorised over channels.
namespace cohort {
namespace {

// The rows of channels of x under one window, in the order of the image.
struct Window {
  int64_t first, rows, columns, row_stride, channels;  // offsets in elements

  int64_t count() const { return rows * columns; }
  template <typename F>
  void for_each(F visit) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) visit(first + r * row_stride + c * channels);
  }
};

Window window_at(const PoolSizes& s, int64_t image, int64_t out_row, int64_t out_column) {
  const int64_t h = out_row * s.stride_h - s.top, w = out_column * s.stride_w - s.left;
  const int64_t top = std::max<int64_t>(h, 0), left = std::max<int64_t>(w, 0);
  return {((image * s.in_h + top) * s.in_w + left) * s.channels,
          std::min(h + s.window_h, s.in_h) - top, std::min(w + s.window_w, s.in_w) - left,
          s.in_w * s.channels, s.channels};
}

// Calls body(window, offset of y's row of channels) for every output pixel; parallel over rows of
// pixels.
template <typename F>
void for_each_output(const PoolSizes& s, F body) {
  parallel_for(s.batch * s.out_h, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < s.out_w; ++c)
        body(window_at(s, r / s.out_h, r % s.out_h, c), (r * s.out_w + c) * s.channels);
  });
}

// As above for gradients, where windows may overlap: parallel over images, whose dx is cleared
// first.
template <typename T, typename F>
void for_each_output_of_images(const PoolSizes& s, T* dx, F body) {
  const int64_t image_size = s.in_h * s.in_w * s.channels;
  parallel_for(s.batch, 1, [&](int64_t begin, int64_t end) {
    std::fill(dx + begin * image_size, dx + end * image_size, T(0));
    for (int64_t r = begin * s.out_h; r < end * s.out_h; ++r)
      for (int64_t c = 0; c < s.out_w; ++c)
        body(window_at(s, r / s.out_h, r % s.out_h, c), (r * s.out_w + c) * s.channels);
  });
}

template <typename T>
class MaxPool final : public Kernel {
 public:
  explicit MaxPool(const KernelSpec& spec) : s_(pool_sizes(spec)) {}

  // NaN wins, so that it is seen.
  void run(const KernelContext& context) override {
    for_each_output(s_, [&](const Window& window, int64_t out) {
      T* y = context.output<T>(0) + out;
      std::copy_n(context.input<T>(0) + window.first, s_.channels, y);
      window.for_each([&](int64_t in) {
        const T* x = context.input<T>(0) + in;
#pragma omp simd
        for (int64_t c = 0; c < s_.channels; ++c) y[c] = functors::Maximum{}(x[c], y[c]);
      });
    });
  }

 private:
  PoolSizes s_;
};

template <typename T>
class MaxPoolGrad final : public Kernel {
 public:
  explicit MaxPoolGrad(const KernelSpec& spec) : s_(max_pool_grad_sizes(spec)) {}

  // Channels go in blocks, for which `left` holds what the window has not handed out yet: the first
  // element equal to the maximum takes it.
  void run(const KernelContext& context) override {
    const T *dy = context.input<T>(0), *x = context.input<T>(1), *y = context.input<T>(2);
    T* dx = context.output<T>(0);
    for_each_output_of_images(s_, dx, [&](const Window& window, int64_t out) {
      for (int64_t first = 0; first < s_.channels; first += kBlock) {
        const int64_t size = std::min(kBlock, s_.channels - first);
        T left[kBlock];
        std::copy_n(dy + out + first, size, left);
        window.for_each([&](int64_t in) {
          hand_out(x + in + first, y + out + first, size, left, dx + in + first);
        });
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 64;

  static void hand_out(const T* x, const T* y, int64_t size, T* left, T* dx) {
#pragma omp simd
    for (int64_t c = 0; c < size; ++c) {
      const bool is_maximum = (x[c] == y[c]) | (x[c] != x[c]);
      dx[c] += is_maximum ? left[c] : T(0);
      left[c] = is_maximum ? T(0) : left[c];
    }
  }

  PoolSizes s_;
};

template <typename T>
class AvgPool final : public Kernel {
 public:
  explicit AvgPool(const KernelSpec& spec) : s_(pool_sizes(spec)) {}

  void run(const KernelContext& context) override {
    for_each_output(s_, [&](const Window& window, int64_t out) {
      T* y = context.output<T>(0) + out;
      std::fill_n(y, s_.channels, T(0));
      window.for_each([&](int64_t in) {
        const T* x = context.input<T>(0) + in;
#pragma omp simd
        for (int64_t c = 0; c < s_.channels; ++c) y[c] += x[c];
      });
      for (int64_t c = 0; c < s_.channels; ++c) y[c] /= static_cast<T>(window.count());
    });
  }

 private:
  PoolSizes s_;
};

template <typename T>
class AvgPoolGrad final : public Kernel {
 public:
  explicit AvgPoolGrad(const KernelSpec& spec) : s_(average_pool_grad_sizes(spec)) {}

  void run(const KernelContext& context) override {
    T* const output = context.output<T>(0);
    for_each_output_of_images(s_, output, [&](const Window& window, int64_t out) {
      const T* dy = context.input<T>(0) + out;
      const T share = T(1) / static_cast<T>(window.count());
      window.for_each([&](int64_t in) {
        T* dx = output + in;
#pragma omp simd
        for (int64_t c = 0; c < s_.channels; ++c) dx[c] += dy[c] * share;
      });
    });
  }

 private:
  PoolSizes s_;
};

COHORT_REGISTER_KERNEL("MaxPool2D", kCpu, make_floating<MaxPool>);
COHORT_REGISTER_KERNEL("MaxPool2DGrad", kCpu, make_floating<MaxPoolGrad>);
COHORT_REGISTER_KERNEL("AvgPool2D", kCpu, make_floating<AvgPool>);
COHORT_REGISTER_KERNEL("AvgPool2DGrad", kCpu, make_floating<AvgPoolGrad>);

}  // namespace
}  // namespace cohort
