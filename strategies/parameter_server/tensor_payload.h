#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/tensor.h"
#include "strategies/parameter_server/exchange.h"

// Tensors as the payload of messages.
namespace cohort::parameter_server {

// The tensor's bytes, which it keeps alive.
Piece piece_of(const Tensor& tensor);

// Where a payload goes: into the memory of one tensor after the other.
class Targets {
 public:
  void add(const Tensor& target) {
    if (target.bytes() > 0) targets_.push_back(target);
  }
  bool done() const { return next_ == targets_.size(); }
  // The next bytes; kDataLoss when there are more than the tensors hold.
  void take(const char* data, size_t bytes);

 private:
  std::vector<Tensor> targets_;
  size_t next_ = 0, filled_ = 0;
};

}  // namespace cohort::parameter_server
