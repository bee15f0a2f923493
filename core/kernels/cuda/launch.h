#pragma once

#include <cstdint>

#include "core/device/device.h"
#include "core/kernels/cuda/launch_shape.h"
#include "core/kernels/kernel.h"

#ifdef __CUDACC__
#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/cuda_stream.h"
#else
#include "core/device/simulated/simulated_gpus.h"
#endif

// Loops of a kernel as launches. The sources of kernels are written with these alone, so that they
// are C++ as well: nvcc makes GPU code of them, and a C++ compiler loops that a simulated GPU's
// stream does on the host, with which they are tested where no GPU is.
#ifdef __CUDACC__
#define COHORT_DEVICE __device__
#else
#define COHORT_DEVICE
#endif

namespace cohort::cuda {

// The threads that work on one row together. All of them call its functions alike.
class Team {
 public:
  COHORT_DEVICE Team(int rank, int size) : rank_(rank), size_(size) {}
  COHORT_DEVICE int rank() const { return rank_; }
  COHORT_DEVICE int size() const { return size_; }

  // `op` over the values of all threads, on every thread; always in the same order. `identity`
  // changes nothing.
  template <typename T, typename Op>
  COHORT_DEVICE T reduce(T value, T identity, Op op) const {
#ifdef __CUDA_ARCH__
    value = reduce_warp(value, op);
    if (size_ == kWarp) return value;
    __shared__ T of_warps[kWarp];
    const int lane = rank_ % kWarp;
    if (lane == 0) of_warps[rank_ / kWarp] = value;
    __syncthreads();
    value = reduce_warp(lane < size_ / kWarp ? of_warps[lane] : identity, op);
    __syncthreads();  // the next reduction writes there
#else
    static_cast<void>(identity);
    static_cast<void>(op);
#endif
    return value;
  }

  template <typename T>
  COHORT_DEVICE T sum(T value) const {
    return reduce(value, T(0), [](T a, T b) { return a + b; });
  }

 private:
#ifdef __CUDA_ARCH__
  template <typename T, typename Op>
  COHORT_DEVICE static T reduce_warp(T value, Op op) {
    for (int other = kWarp / 2; other > 0; other /= 2)
      value = op(value, __shfl_xor_sync(0xffffffffu, value, other));
    return value;
  }
#endif

  int rank_, size_;
};

#ifdef __CUDACC__

template <typename F>
__global__ void __launch_bounds__(kElementThreads) run_elements(int64_t n, F f) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x)
    f(i);
}

template <typename F>
__global__ void __launch_bounds__(kMostRowThreads) run_rows(int64_t rows, F f) {
  const Team team(static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x));
  for (int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y; row < rows;
       row += int64_t{gridDim.x} * blockDim.y)
    f(team, row);
}

// Errors are this launch's own: what others left, cudaGetLastError would show.
template <typename F>
void launch(Stream& stream, dim3 blocks, dim3 threads, void (*kernel)(int64_t, F), int64_t n,
            const F& f) {
  cudaLaunchConfig_t shape = {};
  shape.gridDim = blocks;
  shape.blockDim = threads;
  shape.stream = cuda_stream(stream);
  check_cuda(cudaLaunchKernelEx(&shape, kernel, n, f), "the launch of a kernel", stream.device());
}

// Calls f(i) on the device for i < n, in any order.
template <typename F>
void for_each_element(Stream& stream, int64_t n, F f) {
  if (n <= 0) return;
  const ElementLaunch shape = element_launch(n);
  launch(stream, shape.blocks, shape.threads, run_elements<F>, n, f);
}

// Calls f(team, row) on the device for row < rows, each with a team for `columns` elements.
template <typename F>
void for_each_row(Stream& stream, int64_t rows, int64_t columns, F f) {
  if (rows <= 0) return;
  const RowLaunch shape = row_launch(rows, columns);
  launch(stream, shape.blocks, dim3(shape.team_threads, shape.teams_per_block), run_rows<F>, rows,
         f);
}

#else

template <typename F>
void for_each_element(Stream& stream, int64_t n, F f) {
  simulated::submit(stream, [=] {
    for (int64_t i = 0; i < n; ++i) f(i);
  });
}

template <typename F>
void for_each_row(Stream& stream, int64_t rows, int64_t /*columns*/, F f) {
  simulated::submit(stream, [=] {
    const Team team(0, 1);
    for (int64_t row = 0; row < rows; ++row) f(team, row);
  });
}

#endif

// Reports a mistake in the data. That of the kernel which came first stays, and of one kernel's
// that at the lowest position, to which a loop comes first.
COHORT_DEVICE inline void report(KernelFault* fault, int32_t number, int64_t value,
                                 int64_t position) {
#ifdef __CUDA_ARCH__
  constexpr int32_t kBeingWritten = -1;  // in place of the kernel's number
  volatile KernelFault* known = fault;
  bool done = false;
  while (!done) {
    const int32_t kernel = known->kernel;
    if (kernel == kBeingWritten) continue;
    __threadfence();  // the position that is read comes with it, or is lower
    done = kernel != 0 && (kernel != number || known->position <= position);
    if (done || atomicCAS(&fault->kernel, kernel, kBeingWritten) != kernel) continue;
    __threadfence();
    if (kernel == 0 || position < known->position) {
      known->value = value;
      known->position = position;
    }
    __threadfence();
    atomicExch(&fault->kernel, number);
    done = true;
  }
#else
  if (fault->kernel != 0) return;
  fault->kernel = number;
  fault->value = value;
  fault->position = position;
#endif
}

}  // namespace cohort::cuda
