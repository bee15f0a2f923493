#include "core/collective/call.h"

#include <algorithm>
#include <string>

namespace cohort {
namespace {

// Longer lists are cut in messages.
constexpr size_t kShown = 8;

template <typename Items, typename Number>
std::string list(const Items& items, Number number) {
  std::string text;
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i)
    text += str(i == 0 ? "" : ", ", number(items[i]));
  return items.size() > kShown ? text + ", ..." : text;
}

std::string describe(const BarrierCall&) { return "a barrier"; }

std::string describe(const AllReduceCall& c) {
  return str("an all-reduce (", reduce_op_name(c.op), ") of ", c.segments.size(), " ", c.dtype,
             " tensors with ", list(c.segments, [](const Segment& s) { return s.count; }),
             " elements");
}

std::string describe(const AllGatherCall& c) {
  return str("an all-gather of ", list(c.bytes, [](int64_t bytes) { return bytes; }), " bytes");
}

std::string describe(const BroadcastCall& c) {
  return str("a broadcast of ", c.bytes, " bytes from rank ", c.root);
}

bool same(const BarrierCall&, const BarrierCall&) { return true; }

bool same(const AllReduceCall& a, const AllReduceCall& b) {
  return a.dtype == b.dtype && a.op == b.op &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const Segment& x, const Segment& y) { return x.count == y.count; });
}

bool same(const AllGatherCall& a, const AllGatherCall& b) {
  return std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin(), b.bytes.end());
}

bool same(const BroadcastCall& a, const BroadcastCall& b) {
  return a.bytes == b.bytes && a.root == b.root;
}

bool same(const Call& a, const Call& b) {
  return a.index() == b.index() &&
         std::visit([&]<typename C>(const C& c) { return same(c, std::get<C>(b)); }, a);
}

// What is wrong with a call that all `size` ranks agree on; empty when nothing is.
std::string fault(const BarrierCall&, size_t /*size*/) { return ""; }

std::string fault(const AllReduceCall& c, size_t /*size*/) {
  if (c.dtype == DType::kBool) return "bool tensors cannot be reduced";
  if (c.op == ReduceOp::kMean && !is_floating(c.dtype))
    return str("the mean needs a floating dtype, got ", c.dtype, "; sum and divide instead");
  for (const Segment& s : c.segments)
    if (s.count < 0) return str("a tensor has ", s.count, " elements");
  return "";
}

std::string fault(const AllGatherCall& c, size_t size) {
  if (c.bytes.size() != size)
    return str("there are ", c.bytes.size(), " sizes for ", size, " ranks");
  for (const int64_t bytes : c.bytes)
    if (bytes < 0) return str("a part has ", bytes, " bytes");
  return "";
}

std::string fault(const BroadcastCall& c, size_t size) {
  if (c.root < 0 || c.root >= static_cast<int>(size))
    return str("the root must be a rank from 0 to ", size - 1);
  return c.bytes < 0 ? "the size is negative" : "";
}

std::string describe(const Call& call) {
  return std::visit([](const auto& c) { return describe(c); }, call);
}

}  // namespace

std::optional<Error> find_mistake(std::span<const Call> calls) {
  for (size_t r = 1; r < calls.size(); ++r)
    if (!same(calls[0], calls[r]))
      return Error(Code::kInvalidArgument,
                   str("the ranks of a group must make the same calls, but rank 0 asks for ",
                       describe(calls[0]), " and rank ", r, " for ", describe(calls[r])));
  const std::string wrong =
      std::visit([&](const auto& c) { return fault(c, calls.size()); }, calls[0]);
  if (wrong.empty()) return std::nullopt;
  return Error(Code::kInvalidArgument, describe(calls[0]) + ": " + wrong);
}

}  // namespace cohort
