#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/collective/communicator.h"
#include "core/tensor/tensor.h"

namespace cohort::collective {

// What ranks tell each other about a tensor.
struct TensorHeader {
  int64_t is_defined = 0, dtype = 0, rank = 0;
  std::array<int64_t, Shape::kMaxRank> dims{};
};

TensorHeader header_of(const Tensor& value);
// As rank `rank` has told it. kInvalidArgument for a tensor that is not defined, kDataLoss for what
// describes none; both name the rank.
TensorSpec spec_of(const TensorHeader& header, int rank);
// Of all ranks' tensors. A collective call, whose `topic` is AllGatherCall's and whose errors are
// those of spec_of() on every rank.
std::vector<TensorSpec> exchange_specs(Communicator& group, std::string_view topic,
                                       const Tensor& value);

}  // namespace cohort::collective
