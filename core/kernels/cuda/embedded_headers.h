#pragma once

// The texts of headers for the compiler at run time; the build makes the source of this from them.
namespace cohort::cuda::embedded {

extern const char* const kConvert;      // core/kernels/common/convert.h
extern const char* const kFunctors;     // core/kernels/common/functors.h
extern const char* const kMath;         // core/kernels/common/math.h
extern const char* const kNarrowToOdd;  // core/tensor/narrow_to_odd.h
extern const char* const kSaturate;     // core/tensor/saturate.h
extern const char* const kStandard;     // core/kernels/cuda/nvrtc_std.h

}  // namespace cohort::cuda::embedded
