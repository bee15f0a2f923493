#pragma once

#include <cuda_runtime_api.h>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/memory_ledger.h"

namespace cohort {

// Where memory of a card comes from.
struct MemorySource {
  std::function<void*(size_t bytes)> take;  // null where the card has none left
  std::function<void(void*)> give_back;
};

// One logical GPU in use: its share of a card's memory, from a pool of its own that keeps what is
// freed.
class Gpu {
 public:
  Gpu(Device device, const LogicalGpu& description);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int card() const { return description_.card; }
  // Makes this GPU's card the one that CUDA calls of this thread go to.
  void enter() const;
  std::shared_ptr<Buffer> allocate(size_t bytes, std::string_view purpose);
  // The same from elsewhere than the pool; it counts like memory of the pool.
  std::shared_ptr<Buffer> allocate(size_t bytes, std::string_view purpose,
                                   const MemorySource& source);
  // Complete on return, and not ordered with other streams: not by CUDA's legacy stream, which
  // waits for those of libraries and may spoil what another thread records.
  void copy(const void* source, void* target, size_t bytes, cudaMemcpyKind kind);
  // Gives the card back what the pool keeps of freed memory.
  void trim();
  // Lets `card` read and write this GPU's memory directly, where the cards can.
  void open_to(int card);

 private:
  void* take_from_pool(size_t bytes);
  void* take(const MemorySource& source, size_t bytes, std::string_view purpose);

  const Device device_;
  const LogicalGpu description_;
  MemoryLedger ledger_;
  cudaMemPool_t pool_ = nullptr;
  cudaStream_t stream_ = nullptr;  // of allocations, and of copies
};

// The logical GPUs of this process. Thread-safe.
class Gpus {
 public:
  static Gpus& instance();

  int count();
  std::string missing_reason();  // empty where there are cards
  // Of the next first use; kFailedPrecondition after it.
  void divide(const std::vector<LogicalGpu>& gpus);
  // Takes it into use.
  Gpu& use(Device device);
  // Gives `card` back what all GPUs on it keep of freed memory.
  void trim(int card);
  // Lets the cards of all GPUs in use read and write the memory of `device` directly, where they
  // can, as NCCL does within a process.
  void open_to_others(Device device);

 private:
  Gpus();

  int cards_ = 0;
  std::string reason_;
  std::mutex mutex_;
  std::vector<LogicalGpu> described_;
  // Never ended: buffers may outlive everything, and CUDA is gone when static objects are.
  std::vector<Gpu*> used_;
  bool any_used_ = false;
};

// The card of `device` becomes this thread's.
void enter_gpu(Device device);

}  // namespace cohort
