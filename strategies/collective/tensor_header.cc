#include "strategies/collective/tensor_header.h"

#include <algorithm>
#include <span>

#include "core/base/error.h"
#include "core/collective/split.h"

namespace cohort::collective {

TensorHeader header_of(const Tensor& value) {
  TensorHeader header{.is_defined = value.defined() ? 1 : 0,
                      .dtype = static_cast<int64_t>(value.dtype()),
                      .rank = value.shape().rank()};
  std::copy(value.shape().begin(), value.shape().end(), header.dims.begin());
  return header;
}

TensorSpec spec_of(const TensorHeader& header, int rank) {
  if (header.is_defined == 0) invalid("rank ", rank, " gave a tensor that is not defined");
  if (header.rank < 0 || header.rank > Shape::kMaxRank || header.dtype < 0 ||
      header.dtype >= kNumDTypes)
    fail(Code::kDataLoss, "rank ", rank, " has sent what describes no tensor");
  return {static_cast<DType>(header.dtype),
          Shape(std::span(header.dims).first(static_cast<size_t>(header.rank)))};
}

std::vector<TensorSpec> exchange_specs(Communicator& group, std::string_view topic,
                                       const Tensor& value) {
  const auto headers = tell_all(group, topic, header_of(value));
  std::vector<TensorSpec> specs;
  for (int r = 0; r < group.size(); ++r)
    specs.push_back(spec_of(headers[static_cast<size_t>(r)], r));
  return specs;
}

}  // namespace cohort::collective
