#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/exchange.h"
#include "strategies/parameter_server/streaming_copy.h"

// Tensors as the payload of messages.
namespace cohort::parameter_server {

// The tensor's bytes, which it keeps alive.
Piece piece_of(const Tensor& tensor);

// Where a payload goes: into the memory of one tensor after the other.
class Targets {
 public:
  // `bytes`: of all that will be added, where that is known.
  explicit Targets(size_t bytes = 0) : streams_(bytes >= kStreamedBytes) {}
  void add(const Tensor& target) {
    if (target.bytes() > 0) targets_.push_back(target);
  }
  bool done() const { return next_ == targets_.size(); }
  // How many are full.
  size_t count() const { return next_; }
  // Where the next bytes go; empty when there are to be none.
  std::span<char> room();
  // The next bytes, which may be there already; kDataLoss when there are more than the tensors
  // hold.
  void take(const char* data, size_t bytes);

 private:
  bool streams_;
  std::vector<Tensor> targets_;
  size_t next_ = 0, filled_ = 0;
};

}  // namespace cohort::parameter_server
