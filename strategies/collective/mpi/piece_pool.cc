#include "strategies/collective/mpi/piece_pool.h"

#include <mutex>
#include <new>
#include <vector>

namespace cohort::mpi {
namespace {

constexpr std::align_val_t kPage{4096};

struct Release {
  void operator()(char* memory) const { operator delete(memory, kPage); }
};
using Memory = std::unique_ptr<char, Release>;

}  // namespace

struct PiecePool::Free {
  std::mutex mutex;
  std::vector<Memory> pieces;
};

PiecePool::PiecePool(int64_t bytes) : bytes_(bytes), free_(std::make_shared<Free>()) {}

Piece PiecePool::take() {
  Memory memory;
  {
    const std::lock_guard lock(free_->mutex);
    if (!free_->pieces.empty()) {
      memory = std::move(free_->pieces.back());
      free_->pieces.pop_back();
    }
  }
  if (memory == nullptr)
    memory.reset(static_cast<char*>(operator new(static_cast<size_t>(bytes_), kPage)));
  return {memory.release(), [free = free_](char* used) {
            const std::lock_guard lock(free->mutex);
            free->pieces.emplace_back(used);
          }};
}

}  // namespace cohort::mpi
