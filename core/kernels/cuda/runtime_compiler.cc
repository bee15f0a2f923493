#include "core/kernels/cuda/runtime_compiler.h"

#include <array>
#include <map>
#include <mutex>
#include <nvrtc.h>
#include <utility>

#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/gpus.h"
#include "core/kernels/cuda/embedded_headers.h"

namespace cohort::cuda {
namespace {

// The names under which the embedded headers are included.
constexpr std::array kNames = {"core/kernels/common/convert.h",
                               "core/kernels/common/functors.h",
                               "core/kernels/common/math.h",
                               "core/tensor/half.h",
                               "core/tensor/narrow_to_odd.h",
                               "core/tensor/saturate.h",
                               "bit",
                               "cmath",
                               "concepts",
                               "cstdint",
                               "limits",
                               "type_traits"};

// Storage alone: conversions are instructions there (convert.h).
constexpr const char* kHalf =
    "#pragma once\n"
    "namespace cohort {\n"
    "struct bfloat16 { unsigned short bits; };\n"
    "struct float16 { unsigned short bits; };\n"
    "}\n";

std::array<const char*, kNames.size()> texts() {
  using namespace embedded;
  return {kConvert,  kFunctors, kMath,     kHalf,     kNarrowToOdd, kSaturate,
          kStandard, kStandard, kStandard, kStandard, kStandard,    kStandard};
}

void check_nvrtc(nvrtcResult result, const char* call) {
  if (result != NVRTC_SUCCESS)
    fail(Code::kInternal, call, ": ", nvrtcGetErrorString(result), " (code ",
         static_cast<int>(result), ")");
}

class Program {
 public:
  explicit Program(const std::string& source) {
    const auto headers = texts();
    check_nvrtc(nvrtcCreateProgram(&program_, source.c_str(), "elementwise.cu",
                                   static_cast<int>(kNames.size()), headers.data(), kNames.data()),
                "nvrtcCreateProgram");
  }
  ~Program() { nvrtcDestroyProgram(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const std::string& architecture) {
    const std::string target = "--gpu-architecture=" + architecture;
    // Lambdas have no execution space of their own.
    const std::array options = {target.c_str(), "--std=c++20",
                                "--device-as-default-execution-space"};
    const nvrtcResult result =
        nvrtcCompileProgram(program_, static_cast<int>(options.size()), options.data());
    if (result != NVRTC_SUCCESS)
      fail(Code::kInternal, "nvrtcCompileProgram: ", nvrtcGetErrorString(result), ":\n", log());
  }

  std::string code(bool ptx) const {
    size_t size = 0;
    check_nvrtc(ptx ? nvrtcGetPTXSize(program_, &size) : nvrtcGetCUBINSize(program_, &size),
                "nvrtcGetCUBINSize");
    std::string code(size, '\0');
    check_nvrtc(ptx ? nvrtcGetPTX(program_, code.data()) : nvrtcGetCUBIN(program_, code.data()),
                "nvrtcGetCUBIN");
    return code;
  }

 private:
  std::string log() const {
    size_t size = 0;
    if (nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS) return "";
    std::string text(size, '\0');
    return nvrtcGetProgramLog(program_, text.data()) == NVRTC_SUCCESS ? text : "";
  }

  nvrtcProgram program_ = nullptr;
};

std::string architecture_of(Device device) {
  const int card = Gpus::instance().use(device).card();
  int major = 0, minor = 0;
  COHORT_CUDA(device, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card));
  COHORT_CUDA(device, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, card));
  return str("sm_", major, minor);
}

cudaKernel_t load_code(const std::string& code, Device device) {
  cudaLibrary_t library = nullptr;
  COHORT_CUDA(device,
              cudaLibraryLoadData(&library, code.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  cudaKernel_t kernel = nullptr;
  COHORT_CUDA(device, cudaLibraryGetKernel(&kernel, library, "run"));
  return kernel;
}

}  // namespace

std::string compile_source(const std::string& source, const std::string& architecture) {
  Program program(source);
  program.compile(architecture);
  return program.code(architecture.rfind("compute_", 0) == 0);
}

// Libraries stay loaded: a process makes few of them, and kernels refer to them.
cudaKernel_t load_source(const std::string& source, Device device) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, std::string>, cudaKernel_t> loaded;
  const std::string architecture = architecture_of(device);
  enter_gpu(device);
  const std::lock_guard lock(mutex);
  cudaKernel_t& kernel = loaded[{architecture, source}];
  if (kernel == nullptr) kernel = load_code(compile_source(source, architecture), device);
  return kernel;
}

}  // namespace cohort::cuda
