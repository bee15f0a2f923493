#pragma once

#include <cstdint>
#include <memory>

namespace cohort::mpi {

// Memory that MPI may hold on to after the call that used it was given up.
using Piece = std::shared_ptr<char>;

// Pieces of memory of one size. Those that nobody holds any more are handed out again: a network
// card has registered them already, and they are in the cache. Thread-safe; pieces may outlive it.
class PiecePool {
 public:
  explicit PiecePool(int64_t bytes);
  int64_t bytes() const { return bytes_; }
  Piece take();

 private:
  struct Free;
  const int64_t bytes_;
  const std::shared_ptr<Free> free_;
};

}  // namespace cohort::mpi
