#include "core/kernels/cpu/floating_kernel.h"

#include "core/base/threads.h"
#include "core/kernels/cpu/tile_convert.h"

namespace cohort {
namespace {

constexpr int64_t kConvertGrain = 16 * 1024;  // elements: below, forking costs more than it saves

void widen(const KernelContext&, const TensorSpec& spec, const void* from, void* to) {
  const auto load = tile_converter<float>(spec.dtype).load;
  parallel_for(spec.shape.num_elements(), kConvertGrain, [&](int64_t begin, int64_t end) {
    load(from, begin, 1, static_cast<float*>(to) + begin, end - begin);
  });
}

void narrow(const KernelContext&, const TensorSpec& spec, const void* from, void* to) {
  const auto store = tile_converter<float>(spec.dtype).store;
  parallel_for(spec.shape.num_elements(), kConvertGrain, [&](int64_t begin, int64_t end) {
    store(static_cast<const float*>(from) + begin, to, begin, end - begin);
  });
}

}  // namespace

const HalfConversion kCpuHalfConversion = {widen, narrow};

}  // namespace cohort
