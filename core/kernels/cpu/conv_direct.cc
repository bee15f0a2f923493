#include "core/kernels/cpu/conv_direct.h"

#include <algorithm>

namespace cohort {
namespace {

// Calls visit(kernel position, x pixel) for each filter tap of an output pixel that falls on the
// image, both as offsets in pixels.
template <typename F>
void for_each_tap(const ConvSizes& s, int64_t image, int64_t out_row, int64_t out_column, F visit) {
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const int64_t h = out_row * s.stride_h - s.top + kh * s.dilation_h;
    if (h < 0 || h >= s.in_h) continue;
    for (int64_t kw = 0; kw < s.kernel_w; ++kw) {
      const int64_t w = out_column * s.stride_w - s.left + kw * s.dilation_w;
      if (w >= 0 && w < s.in_w) visit(kh * s.kernel_w + kw, (image * s.in_h + h) * s.in_w + w);
    }
  }
}

// y[o] += sum over i of x[i] * filter[i][o], within each group.
template <typename T>
void add_tap(const ConvSizes& s, const T* x, const T* filter, T* y) {
  for (int64_t i = 0; i < s.in_c; ++i) {
    const int64_t group = i / s.group_in(), first = group * s.group_out();
    const T* row = filter + (i % s.group_in()) * s.out_c;
    for (int64_t o = first; o < first + s.group_out(); ++o) y[o] += x[i] * row[o];
  }
}

// dx[i] += sum over o of dy[o] * filter[i][o], within each group.
template <typename T>
void add_tap_gradient(const ConvSizes& s, const T* dy, const T* filter, T* dx) {
  for (int64_t i = 0; i < s.in_c; ++i) {
    const int64_t group = i / s.group_in(), first = group * s.group_out();
    const T* row = filter + (i % s.group_in()) * s.out_c;
    T sum = 0;
    for (int64_t o = first; o < first + s.group_out(); ++o) sum += dy[o] * row[o];
    dx[i] += sum;
  }
}

}  // namespace

template <typename T>
DirectConv<T>::DirectConv(const KernelSpec& spec)
    : s_(conv_sizes(spec)),
      fused_(spec.inputs.size() == 3),
      epilogue_(spec.attributes.get_or<std::string>("activation", "")) {}

template <typename T>
void DirectConv<T>::run(const KernelContext& context) {
  const T *x = context.input<T>(0), *filter = context.input<T>(1);
  T* y = context.output<T>(0);
  const int64_t rows = s_.batch * s_.out_h, taps = s_.group_in() * s_.out_c;
  parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    std::fill(y + begin * s_.out_w * s_.out_c, y + end * s_.out_w * s_.out_c, T(0));
    for (int64_t r = begin; r < end; ++r)
      for (int64_t c = 0; c < s_.out_w; ++c)
        for_each_tap(s_, r / s_.out_h, r % s_.out_h, c, [&](int64_t k, int64_t pixel) {
          add_tap(s_, x + pixel * s_.in_c, filter + k * taps, y + (r * s_.out_w + c) * s_.out_c);
        });
  });
  epilogue_.run(y, rows * s_.out_w, s_.out_c, fused_ ? context.input<T>(2) : nullptr);
}

// Parallel over images: their gradients are apart.
template <typename T>
void DirectConvGradInput<T>::run(const KernelContext& context) {
  const T *dy = context.input<T>(0), *filter = context.input<T>(1);
  T* dx = context.output<T>(0);
  const int64_t image_size = s_.in_h * s_.in_w * s_.in_c, taps = s_.group_in() * s_.out_c;
  parallel_for(s_.batch, 1, [&](int64_t begin, int64_t end) {
    std::fill(dx + begin * image_size, dx + end * image_size, T(0));
    for (int64_t r = begin * s_.out_h; r < end * s_.out_h; ++r)
      for (int64_t c = 0; c < s_.out_w; ++c)
        for_each_tap(s_, r / s_.out_h, r % s_.out_h, c, [&](int64_t k, int64_t pixel) {
          add_tap_gradient(s_, dy + (r * s_.out_w + c) * s_.out_c, filter + k * taps,
                           dx + pixel * s_.in_c);
        });
  });
}

// Parallel over the filter's input channels: each thread passes over all pixels for its own.
template <typename T>
void DirectConvGradFilter<T>::run(const KernelContext& context) {
  const T *x = context.input<T>(0), *dy = context.input<T>(1);
  T* dfilter = context.output<T>(0);
  const int64_t taps = s_.group_in() * s_.out_c;
  std::fill(dfilter, dfilter + s_.kernel_h * s_.kernel_w * taps, T(0));
  parallel_for(s_.group_in(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < s_.batch * s_.out_h; ++r)
      for (int64_t c = 0; c < s_.out_w; ++c)
        for_each_tap(s_, r / s_.out_h, r % s_.out_h, c, [&](int64_t k, int64_t pixel) {
          const T* gradient = dy + (r * s_.out_w + c) * s_.out_c;
          for (int64_t i = begin; i < end; ++i)
            for (int64_t o = 0; o < s_.out_c; ++o)
              dfilter[k * taps + i * s_.out_c + o] +=
                  x[pixel * s_.in_c + o / s_.group_out() * s_.group_in() + i] * gradient[o];
        });
  });
}

template class DirectConv<float>;
template class DirectConv<double>;
template class DirectConvGradInput<float>;
template class DirectConvGradInput<double>;
template class DirectConvGradFilter<float>;
template class DirectConvGradFilter<double>;

}  // namespace cohort
