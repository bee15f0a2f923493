#include "core/device/cuda/gpus.h"

#include <algorithm>
#include <limits>

#include "core/device/cuda/cuda_error.h"

namespace cohort {

Gpu::Gpu(Device device, const LogicalGpu& description)
    : device_(device), description_(description), ledger_(str(device), description.memory_limit) {
  enter();
  cudaMemPoolProps properties = {};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, card()};
  COHORT_CUDA(device_, cudaMemPoolCreate(&pool_, &properties));
  uint64_t keep_all = std::numeric_limits<uint64_t>::max();
  COHORT_CUDA(device_, cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep_all));
  COHORT_CUDA(device_, cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
}

Gpu::~Gpu() {
  cudaStreamDestroy(stream_);
  cudaMemPoolDestroy(pool_);
}

void Gpu::enter() const { COHORT_CUDA(device_, cudaSetDevice(card())); }

std::shared_ptr<Buffer> Gpu::allocate(size_t bytes, std::string_view purpose) {
  return allocate(bytes, purpose,
                  {[this](size_t least) { return take_from_pool(least); },
                   [this](void* data) { cudaFreeAsync(data, stream_); }});
}

std::shared_ptr<Buffer> Gpu::allocate(size_t bytes, std::string_view purpose,
                                      const MemorySource& source) {
  enter();
  const size_t least = std::max<size_t>(bytes, 1);  // an empty tensor has an address, too
  ledger_.take(least, purpose);
  void* data = nullptr;
  try {
    data = take(source, least, purpose);
  } catch (...) {
    ledger_.give_back(least, purpose);
    throw;
  }
  return {new Buffer{data, bytes}, [this, give_back = source.give_back, least,
                                    purpose = std::string(purpose)](Buffer* buffer) {
            cudaSetDevice(card());
            give_back(buffer->data);
            ledger_.give_back(least, purpose);
            delete buffer;
          }};
}

void Gpu::copy(const void* source, void* target, size_t bytes, cudaMemcpyKind kind) {
  enter();
  COHORT_CUDA(device_, cudaMemcpyAsync(target, source, bytes, kind, stream_));
  COHORT_CUDA(device_, cudaStreamSynchronize(stream_));
}

void Gpu::trim() {
  cudaStreamSynchronize(stream_);  // what was freed is free now
  cudaMemPoolTrimTo(pool_, 0);
}

void Gpu::open_to(int card) {
  if (card == this->card()) return;
  int can = 0;
  COHORT_CUDA(device_, cudaDeviceCanAccessPeer(&can, card, this->card()));
  if (can == 0) return;
  cudaMemAccessDesc access = {};
  access.location.type = cudaMemLocationTypeDevice;
  access.location.id = card;
  access.flags = cudaMemAccessFlagsProtReadWrite;
  COHORT_CUDA(device_, cudaMemPoolSetAccess(pool_, &access, 1));
}

// Other streams use the memory at once: the allocation is waited for.
void* Gpu::take_from_pool(size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&data, bytes, pool_, stream_);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "cudaMallocFromPoolAsync", device_);
  COHORT_CUDA(device_, cudaStreamSynchronize(stream_));
  return data;
}

void* Gpu::take(const MemorySource& source, size_t bytes, std::string_view purpose) {
  if (void* data = source.take(bytes)) return data;
  Gpus::instance().trim(card());
  if (void* data = source.take(bytes)) return data;
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  throw ledger_.refused(bytes, purpose, free);
}

Gpus& Gpus::instance() {
  static auto* gpus = new Gpus;
  return *gpus;
}

Gpus::Gpus() {
  const cudaError_t status = cudaGetDeviceCount(&cards_);
  if (status != cudaSuccess) {
    cudaGetLastError();
    cards_ = 0;
    reason_ =
        str(status == cudaErrorInsufficientDriver ? "no NVIDIA driver, or one too old for " : "",
            "CUDA ", CUDART_VERSION / 1000, ": cudaGetDeviceCount: ", cudaGetErrorString(status),
            " (", cudaGetErrorName(status), ")");
  } else if (cards_ == 0) {
    reason_ = "the NVIDIA driver shows no card";
  }
  for (int card = 0; card < cards_; ++card) described_.push_back({.card = card});
  used_.resize(described_.size());
}

int Gpus::count() {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(described_.size());
}

std::string Gpus::missing_reason() { return reason_; }

void Gpus::divide(const std::vector<LogicalGpu>& gpus) {
  const std::lock_guard lock(mutex_);
  if (gpus.empty()) invalid("at least 1 logical gpu is needed");
  for (const LogicalGpu& gpu : gpus)
    if (gpu.card < 0 || gpu.card >= cards_)
      fail(Code::kNotFound, "there is no card ", gpu.card, "; this process sees ", cards_,
           reason_.empty() ? "" : str(" (", reason_, ")"));
  if (any_used_)
    fail(Code::kFailedPrecondition,
         "set_logical_gpus comes too late: a GPU is in use; call it first");
  described_ = gpus;
  used_.assign(described_.size(), nullptr);
}

Gpu& Gpus::use(Device device) {
  const std::lock_guard lock(mutex_);
  const auto index = static_cast<size_t>(device.index);
  if (device.index < 0 || index >= described_.size())
    fail(Code::kNotFound, "there is no device ", device, "; this process has ", described_.size(),
         " GPUs", reason_.empty() ? "" : str(" (", reason_, ")"));
  if (used_[index] == nullptr) {
    used_[index] = new Gpu(device, described_[index]);
    any_used_ = true;
  }
  return *used_[index];
}

void Gpus::trim(int card) {
  const std::lock_guard lock(mutex_);
  for (Gpu* gpu : used_)
    if (gpu != nullptr && gpu->card() == card) gpu->trim();
}

void Gpus::open_to_others(Device device) {
  Gpu& own = use(device);
  const std::lock_guard lock(mutex_);
  for (const Gpu* gpu : used_)
    if (gpu != nullptr) own.open_to(gpu->card());
}

void enter_gpu(Device device) { Gpus::instance().use(device).enter(); }

}  // namespace cohort
