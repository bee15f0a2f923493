// Stands for the library of NVIDIA's driver, libcuda.so.1, where there is none. cuDNN looks for
// these functions before it takes engines that compile kernels into account, and loads what they
// have compiled by the last two. All others say that there is no device.
namespace {
constexpr int kSuccess = 0, kNoDevice = 100;
const char kHandle = 0;  // nobody looks at what a handle points to
}  // namespace

extern "C" {

int cuDeviceGet() { return kNoDevice; }
int cuDeviceGetCount() { return kNoDevice; }
int cuDriverGetVersion() { return kNoDevice; }
int cuGetErrorName() { return kNoDevice; }
int cuGetErrorString() { return kNoDevice; }

int cuCtxGetCurrent() { return kNoDevice; }
int cuCtxGetLimit() { return kNoDevice; }
int cuCtxPopCurrent() { return kNoDevice; }
int cuCtxPushCurrent() { return kNoDevice; }
int cuStreamGetCtx() { return kNoDevice; }

int cuKernelGetAttribute() { return kNoDevice; }
int cuKernelSetAttribute() { return kNoDevice; }
int cuLaunchCooperativeKernel() { return kNoDevice; }
int cuLaunchKernel() { return kNoDevice; }

int cuLinkAddData() { return kNoDevice; }
int cuLinkComplete() { return kNoDevice; }
int cuLinkCreate() { return kNoDevice; }
int cuLinkDestroy() { return kNoDevice; }

int cuLibraryLoadFromFile() { return kNoDevice; }
int cuLibraryUnload() { return kSuccess; }
int cuLibraryLoadData(const void** library) {
  *library = &kHandle;
  return kSuccess;
}
int cuLibraryGetKernel(const void** kernel) {
  *kernel = &kHandle;
  return kSuccess;
}

}  // extern "C"
