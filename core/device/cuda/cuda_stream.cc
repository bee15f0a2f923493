#include "core/device/cuda/cuda_stream.h"

#include "core/device/cuda/cuda_error.h"
#include "core/device/cuda/gpus.h"
#include "core/device/timed_stream.h"

namespace cohort {
namespace {

// As Gpu::enter, for destructors: they may run on a thread that would take card 0 into use.
void enter_to_end(const Gpu& gpu) { cudaSetDevice(gpu.card()); }

class CudaGraph final : public Recording {
 public:
  CudaGraph(const Gpu& gpu, cudaGraphExec_t graph) : gpu_(gpu), graph_(graph) {}
  ~CudaGraph() override {
    enter_to_end(gpu_);
    cudaGraphExecDestroy(graph_);
  }
  cudaGraphExec_t get() const { return graph_; }

 private:
  const Gpu& gpu_;
  cudaGraphExec_t graph_;
};

class CudaMark final : public StreamMark {
 public:
  CudaMark(Device device, const Gpu& gpu, cudaStream_t stream)
      : device_(device), gpu_(gpu), stream_(stream) {
    gpu_.enter();
    COHORT_CUDA(device_, cudaEventCreateWithFlags(&event_, cudaEventDefault));
  }
  ~CudaMark() override {
    enter_to_end(gpu_);
    cudaEventDestroy(event_);
  }

  void put() override {
    gpu_.enter();
    COHORT_CUDA(device_, cudaEventRecord(event_, stream_));
  }
  std::chrono::nanoseconds since(const StreamMark& earlier) const override {
    float milliseconds = 0;
    COHORT_CUDA(device_, cudaEventElapsedTime(
                             &milliseconds, static_cast<const CudaMark&>(earlier).event_, event_));
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double, std::milli>(milliseconds));
  }

 private:
  const Device device_;
  const Gpu& gpu_;
  const cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class CudaStream final : public TimedStream {
 public:
  explicit CudaStream(Device device) : device_(device), gpu_(Gpus::instance().use(device)) {
    gpu_.enter();
    COHORT_CUDA(device_, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~CudaStream() override {
    enter_to_end(gpu_);
    cudaStreamDestroy(stream_);
  }

  Device device() const override { return device_; }
  void copy_from_host(const void* source, void* target, size_t bytes) override {
    copy(source, target, bytes, cudaMemcpyHostToDevice);
  }
  void copy_to_host(const void* source, void* target, size_t bytes) override {
    copy(source, target, bytes, cudaMemcpyDeviceToHost);
  }
  void copy_within_device(const void* source, void* target, size_t bytes) override {
    if (source != target) copy(source, target, bytes, cudaMemcpyDeviceToDevice);
  }
  void synchronize() override {
    gpu_.enter();
    COHORT_CUDA(device_, cudaStreamSynchronize(stream_));
  }

  // Thread-local: of what other threads do with CUDA meanwhile, waiting for the device alone is
  // refused.
  void begin_recording() override {
    gpu_.enter();
    COHORT_CUDA(device_, cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
  }
  std::unique_ptr<Recording> end_recording() override {
    cudaGraph_t graph = nullptr;
    COHORT_CUDA(device_, cudaStreamEndCapture(stream_, &graph));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "cudaGraphInstantiate", device_);
    return std::make_unique<CudaGraph>(gpu_, executable);
  }
  void replay(Recording& recording) override {
    gpu_.enter();
    COHORT_CUDA(device_, cudaGraphLaunch(static_cast<CudaGraph&>(recording).get(), stream_));
  }
  // What is launched on it must come from a thread that is at its card, and whatever the thread did
  // with another GPU's memory has taken it there.
  void* native() override {
    gpu_.enter();
    return stream_;
  }
  std::unique_ptr<StreamMark> make_mark() override {
    return std::make_unique<CudaMark>(device_, gpu_, stream_);
  }

 private:
  void copy(const void* source, void* target, size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    gpu_.enter();
    COHORT_CUDA(device_, cudaMemcpyAsync(target, source, bytes, kind, stream_));
  }

  const Device device_;
  const Gpu& gpu_;
  cudaStream_t stream_ = nullptr;
};

}  // namespace

std::unique_ptr<Stream> make_cuda_stream(Device device) {
  return std::make_unique<CudaStream>(device);
}

}  // namespace cohort
