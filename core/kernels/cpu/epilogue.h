#pragma once

#include <string>

#include "core/base/threads.h"
#include "core/kernels/cpu/tile_functions.h"

namespace cohort {

// What follows a matrix product or a convolution: y = activation(y + bias), in place.
template <typename T>
class Epilogue {
 public:
  explicit Epilogue(const std::string& activation) {
    Scalar op;
    if (scalar_from_name(activation, op)) activate_ = tile_function<T>(op);
  }

  // `y` holds rows of `columns` elements; `bias` has one element a column, or is null.
  void run(T* y, int64_t rows, int64_t columns, const T* bias) const {
    if (bias != nullptr) add_bias(y, rows, columns, bias);
    if (activate_ == nullptr) return;
    parallel_for(rows * columns, kGrain, [&](int64_t begin, int64_t end) {
      activate_(y + begin, nullptr, nullptr, y + begin, end - begin);
    });
  }

 private:
  static constexpr int64_t kGrain = 16 * 1024;  // elements a thread should have at least

  static void add_bias(T* y, int64_t rows, int64_t columns, const T* bias) {
    parallel_for(rows, kGrain / (columns + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t c = 0; c < columns; ++c) y[r * columns + c] += bias[c];
    });
  }

  TileFunction<T> activate_ = nullptr;
};

}  // namespace cohort
