#include "strategies/collective/nccl/nccl_steps.h"

#include <algorithm>

namespace cohort {
namespace {

using Kind = NcclStep::Kind;
using Steps = std::optional<std::vector<NcclStep>>;

// NCCL's least and greatest of floating numbers pass over NaN, which is to win.
bool can_reduce(DType dtype, ReduceOp op) {
  if (dtype == DType::kBool || is_bitwise(op)) return false;
  if (op == ReduceOp::kMin || op == ReduceOp::kMax) return !is_floating(dtype);
  return op != ReduceOp::kMean || is_floating(dtype);
}

bool all_equal(std::span<const int64_t> parts) {
  return std::adjacent_find(parts.begin(), parts.end(), std::not_equal_to<>()) == parts.end();
}

class Translation {
 public:
  explicit Translation(int rank) : rank_(static_cast<size_t>(rank)) {}

  Steps operator()(const AllReduceCall& call) const {
    if (!can_reduce(call.dtype, call.op)) return std::nullopt;
    std::vector<NcclStep> steps;
    for (const Segment& s : call.segments)
      if (s.count > 0)
        steps.push_back({Kind::kAllReduce, s.source, s.target, s.count, call.dtype, call.op});
    return steps;
  }

  Steps operator()(const ReduceCall& call) const {
    if (!can_reduce(call.dtype, call.op)) return std::nullopt;
    if (call.count == 0) return std::vector<NcclStep>();
    return {
        {{Kind::kReduce, call.source, call.target, call.count, call.dtype, call.op, call.root}}};
  }

  // NCCL knows equal parts only; others are reduced one by one.
  Steps operator()(const ReduceScatterCall& call) const {
    if (!can_reduce(call.dtype, call.op)) return std::nullopt;
    if (all_equal(call.counts)) {
      if (call.counts[0] == 0) return std::vector<NcclStep>();
      return {
          {{Kind::kReduceScatter, call.source, call.target, call.counts[0], call.dtype, call.op}}};
    }
    std::vector<NcclStep> steps;
    const auto* source = static_cast<const char*>(call.source);
    for (size_t r = 0; r < call.counts.size(); ++r) {
      if (call.counts[r] > 0)
        steps.push_back({Kind::kReduce, source, r == rank_ ? call.target : nullptr, call.counts[r],
                         call.dtype, call.op, static_cast<int>(r)});
      source += call.counts[r] * static_cast<int64_t>(dtype_size(call.dtype));
    }
    return steps;
  }

  Steps operator()(const BroadcastCall& call) const {
    if (call.bytes == 0) return std::vector<NcclStep>();
    const void* source = static_cast<int>(rank_) == call.root ? call.source : call.target;
    return {{{Kind::kBroadcast, source, call.target, call.bytes, DType::kUInt8, ReduceOp::kSum,
              call.root}}};
  }

  Steps operator()(const AllGatherCall& call) const {
    if (all_equal(call.bytes)) {
      if (call.bytes[0] == 0) return std::vector<NcclStep>();
      return {{{Kind::kAllGather, call.source, call.target, call.bytes[0]}}};
    }
    std::vector<NcclStep> steps;
    auto* target = static_cast<char*>(call.target);
    for (size_t r = 0; r < call.bytes.size(); ++r) {
      if (call.bytes[r] > 0)
        steps.push_back({Kind::kBroadcast, r == rank_ ? call.source : target, target, call.bytes[r],
                         DType::kUInt8, ReduceOp::kSum, static_cast<int>(r)});
      target += call.bytes[r];
    }
    return steps;
  }

  template <typename Other>
  Steps operator()(const Other&) const {
    return std::nullopt;
  }

 private:
  size_t rank_;
};

}  // namespace

std::optional<std::vector<NcclStep>> nccl_steps(const Call& call, int rank) {
  return std::visit(Translation(rank), call);
}

}  // namespace cohort
