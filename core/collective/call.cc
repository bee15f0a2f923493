#include "core/collective/call.h"

#include <algorithm>
#include <numeric>

#include "core/base/comma_separated.h"
#include "core/base/fnv1a.h"

namespace cohort {
namespace {

// Longer lists are cut in messages, where the number of those left out would look like one of them.
constexpr size_t kShown = 8;

template <typename Items, typename Number>
std::string list(const Items& items, Number number) {
  const std::string text = comma_separated(items.first(std::min(kShown, items.size())), number);
  return items.size() > kShown ? text + ", ..." : text;
}

std::string list(std::span<const int64_t> numbers) {
  return list(numbers, [](int64_t number) { return number; });
}

int64_t sum(std::span<const int64_t> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{0});
}

int64_t elements(const AllReduceCall& c) {
  return std::accumulate(c.segments.begin(), c.segments.end(), int64_t{0},
                         [](int64_t total, const Segment& s) { return total + s.count; });
}

int64_t bytes(int64_t count, DType dtype) {
  return count * static_cast<int64_t>(dtype_size(dtype));
}

// How many a list has that is cut, which may be all that differs.
std::string count(std::span<const TensorSpec> specs) {
  if (specs.size() <= kShown) return "";
  size_t total = 0;
  for (const TensorSpec& spec : specs) total += spec.bytes();
  return str(specs.size(), " tensors of ", total, " bytes: ");
}

// A tensor by its dtype and shape. Without one there is no memory for the scalar that it seems.
std::string tensor(DType dtype, const Shape& shape, const void* source) {
  const bool is_defined = source != nullptr || shape.num_elements() == 0;
  return is_defined ? str(dtype, shape) : "an undefined tensor";
}

// --- Names

struct Kind {
  std::string_view operator()(const BarrierCall&) const { return "Barrier"; }
  std::string_view operator()(const AllReduceCall&) const { return "AllReduce"; }
  std::string_view operator()(const ReduceCall&) const { return "Reduce"; }
  std::string_view operator()(const ReduceScatterCall&) const { return "ReduceScatter"; }
  std::string_view operator()(const BroadcastCall&) const { return "Broadcast"; }
  std::string_view operator()(const AllGatherCall&) const { return "AllGather"; }
  std::string_view operator()(const GatherCall&) const { return "Gather"; }
  std::string_view operator()(const ScatterCall&) const { return "Scatter"; }
  std::string_view operator()(const AllToAllCall&) const { return "AllToAll"; }
};

struct Description {
  std::string operator()(const BarrierCall& c) const {
    if (c.topic != 0) return str("a barrier with topic ", c.topic);
    return c.purpose.empty() ? "a barrier" : str("a barrier for ", c.purpose);
  }
  std::string operator()(const AllReduceCall& c) const {
    if (c.segments.empty()) return str("an all-reduce (", reduce_op_name(c.op), ") of no tensors");
    auto segment = c.segments.begin();
    if (!c.specs.empty())
      return str("an all-reduce (", reduce_op_name(c.op), ") of ", count(c.specs),
                 list(c.specs, [&](const TensorSpec& spec) {
                   return spec.dtype == c.dtype ? tensor(c.dtype, spec.shape, (segment++)->source)
                                                : str(spec);
                 }));
    return str("an all-reduce (", reduce_op_name(c.op), ") of ", c.segments.size(), " ", c.dtype,
               " tensors with ", list(c.segments, [](const Segment& s) { return s.count; }),
               " elements");
  }
  std::string operator()(const ReduceCall& c) const {
    if (c.shape != nullptr)
      return str("a reduce (", reduce_op_name(c.op), ") of ", tensor(c.dtype, *c.shape, c.source),
                 " to rank ", c.root);
    return str("a reduce (", reduce_op_name(c.op), ") of ", c.count, " ", c.dtype,
               " elements to rank ", c.root);
  }
  std::string operator()(const ReduceScatterCall& c) const {
    if (c.shape != nullptr)
      return str("a reduce-scatter (", reduce_op_name(c.op), ") of ",
                 tensor(c.dtype, *c.shape, c.source), " in parts of ", list(c.counts), " elements");
    return str("a reduce-scatter (", reduce_op_name(c.op), ") of ", list(c.counts), " ", c.dtype,
               " elements");
  }
  std::string operator()(const BroadcastCall& c) const {
    const std::string what =
        c.topic.empty() ? str("a broadcast of ", c.bytes, " bytes") : std::string(c.topic);
    return str(what, " from rank ", c.root);
  }
  std::string operator()(const AllGatherCall& c) const {
    return c.topic.empty() ? str("an all-gather of ", list(c.bytes), " bytes")
                           : str("an exchange for ", c.topic);
  }
  std::string operator()(const GatherCall& c) const {
    return str("a gather of ", list(c.bytes), " bytes to rank ", c.root);
  }
  std::string operator()(const ScatterCall& c) const {
    return str("a scatter of ", list(c.bytes), " bytes from rank ", c.root);
  }
  std::string operator()(const AllToAllCall& c) const {
    return str("an all-to-all that sends ", list(c.send_bytes), " bytes and receives ",
               list(c.receive_bytes));
  }
};

struct Bytes {
  int64_t operator()(const BarrierCall&) const { return 0; }
  int64_t operator()(const AllReduceCall& c) const { return bytes(elements(c), c.dtype); }
  int64_t operator()(const ReduceCall& c) const { return bytes(c.count, c.dtype); }
  int64_t operator()(const ReduceScatterCall& c) const { return bytes(sum(c.counts), c.dtype); }
  int64_t operator()(const BroadcastCall& c) const { return c.bytes; }
  int64_t operator()(const AllGatherCall& c) const { return sum(c.bytes); }
  int64_t operator()(const GatherCall& c) const { return sum(c.bytes); }
  int64_t operator()(const ScatterCall& c) const { return sum(c.bytes); }
  int64_t operator()(const AllToAllCall& c) const {
    return std::max(sum(c.send_bytes), sum(c.receive_bytes));
  }
};

// --- Mistakes: what is wrong, or "".

std::string fault_of_reduction(ReduceOp op, DType dtype) {
  if (!is_reduce_op(op)) return str("there is no reduce op ", static_cast<int64_t>(op));
  if (dtype == DType::kBool) return "bool tensors cannot be reduced";
  if (op == ReduceOp::kMean && !is_floating(dtype))
    return str("the mean needs a floating dtype, got ", dtype, "; sum and divide instead");
  if (is_bitwise(op) && is_floating(dtype))
    return str(reduce_op_name(op), " needs an integer dtype, got ", dtype);
  return "";
}

std::string fault_of_source(const void* source, int64_t count, int rank) {
  if (count < 0) return str("a tensor of rank ", rank, " has ", count, " elements");
  return source == nullptr && count > 0
             ? str("a tensor of rank ", rank, " is not defined: it has no memory")
             : "";
}

std::string fault_of_root(int root, int size) {
  return root >= 0 && root < size ? "" : str("the root must be a rank from 0 to ", size - 1);
}

std::string fault_of_sizes(std::span<const int64_t> sizes, int size) {
  if (sizes.size() != static_cast<size_t>(size))
    return str("there are ", sizes.size(), " sizes for ", size, " ranks");
  for (const int64_t bytes : sizes)
    if (bytes < 0) return str("a part has ", bytes, " bytes");
  return "";
}

std::string first(std::string a, std::string b) { return a.empty() ? std::move(b) : std::move(a); }

struct Fault {
  int rank, size;

  std::string operator()(const BarrierCall&) const { return ""; }
  std::string operator()(const AllReduceCall& c) const {
    for (const Segment& s : c.segments)
      if (std::string fault = fault_of_source(s.source, s.count, rank); !fault.empty())
        return fault;
    return fault_of_reduction(c.op, c.dtype);
  }
  std::string operator()(const ReduceCall& c) const {
    return first(fault_of_source(c.source, c.count, rank),
                 first(fault_of_root(c.root, size), fault_of_reduction(c.op, c.dtype)));
  }
  std::string operator()(const ReduceScatterCall& c) const {
    if (c.shape != nullptr && c.shape->rank() == 0)
      return first(fault_of_source(c.source, 1, rank),
                   "a scalar has no rows to divide among the ranks");
    return first(
        fault_of_sizes(c.counts, size),
        first(fault_of_source(c.source, sum(c.counts), rank), fault_of_reduction(c.op, c.dtype)));
  }
  std::string operator()(const BroadcastCall& c) const {
    return first(fault_of_root(c.root, size), c.bytes < 0 ? "the size is negative" : "");
  }
  std::string operator()(const AllGatherCall& c) const { return fault_of_sizes(c.bytes, size); }
  std::string operator()(const GatherCall& c) const {
    return first(fault_of_root(c.root, size), fault_of_sizes(c.bytes, size));
  }
  std::string operator()(const ScatterCall& c) const {
    return first(fault_of_root(c.root, size), fault_of_sizes(c.bytes, size));
  }
  std::string operator()(const AllToAllCall& c) const {
    const std::string fault =
        first(fault_of_sizes(c.send_bytes, size), fault_of_sizes(c.receive_bytes, size));
    // Others may have made no mistake, as their sizes need not be these.
    if (!fault.empty()) return str("on rank ", rank, " ", fault);
    const auto own = static_cast<size_t>(rank);
    return c.send_bytes[own] == c.receive_bytes[own]
               ? ""
               : str("rank ", rank, " sends itself ", c.send_bytes[own], " bytes and expects ",
                     c.receive_bytes[own]);
  }
};

// The memory that a rank needs for a call that has no other mistake.
struct Memory {
  const void* source = nullptr;
  int64_t source_bytes = 0;
  const void* target = nullptr;
  int64_t target_bytes = 0;
};

struct MemoryOf {
  int rank;

  // Of a reduction the source has been looked at; of an all-reduce a target may be missing.
  Memory operator()(const BarrierCall&) const { return {}; }
  Memory operator()(const AllReduceCall&) const { return {}; }
  Memory operator()(const ReduceCall& c) const {
    return {.target = c.target, .target_bytes = at_root(c, bytes(c.count, c.dtype))};
  }
  Memory operator()(const ReduceScatterCall& c) const {
    return {.target = c.target, .target_bytes = bytes(own(c.counts), c.dtype)};
  }
  Memory operator()(const BroadcastCall& c) const {
    return {c.source, at_root(c, c.bytes), c.target, c.bytes};
  }
  Memory operator()(const AllGatherCall& c) const {
    return {c.source, own(c.bytes), c.target, sum(c.bytes)};
  }
  Memory operator()(const GatherCall& c) const {
    return {c.source, own(c.bytes), c.target, at_root(c, sum(c.bytes))};
  }
  Memory operator()(const ScatterCall& c) const {
    return {c.source, at_root(c, sum(c.bytes)), c.target, own(c.bytes)};
  }
  Memory operator()(const AllToAllCall& c) const {
    return {c.source, sum(c.send_bytes), c.target, sum(c.receive_bytes)};
  }

  int64_t own(std::span<const int64_t> sizes) const { return sizes[static_cast<size_t>(rank)]; }
  template <typename Rooted>
  int64_t at_root(const Rooted& call, int64_t bytes) const {
    return rank == call.root ? bytes : 0;
  }
};

std::string fault_of_memory(const Memory& memory, int rank) {
  const bool lacks_source = memory.source == nullptr && memory.source_bytes > 0,
             lacks_target = memory.target == nullptr && memory.target_bytes > 0;
  if (!lacks_source && !lacks_target) return "";
  return str("on rank ", rank, " the ", lacks_source ? "source" : "target", " of ",
             lacks_source ? memory.source_bytes : memory.target_bytes, " bytes is null");
}

// --- Equality, by a hash of all that must be equal

class Hash {
 public:
  // As FNV-1a, but of whole words, so that it also brings high bits down.
  void add(uint64_t word) {
    value_ = (value_ ^ word) * 0x9E3779B97F4A7C15u;
    value_ ^= value_ >> 29;
  }
  void add(std::span<const int64_t> words) {
    add(words.size());
    for (const int64_t word : words) add(static_cast<uint64_t>(word));
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325u;
};

struct Content {
  Hash& hash;

  void operator()(const BarrierCall& c) const {
    hash.add(c.topic);
    hash.add(fnv1a(c.purpose));
  }
  void operator()(const AllReduceCall& c) const {
    reduction(c.op, c.dtype);
    hash.add(c.segments.size());
    for (const Segment& segment : c.segments) hash.add(static_cast<uint64_t>(segment.count));
    for (const TensorSpec& spec : c.specs) {
      hash.add(static_cast<uint64_t>(spec.dtype));
      hash.add(spec.shape.dims());
    }
  }
  void operator()(const ReduceCall& c) const {
    reduction(c.op, c.dtype);
    rooted({&c.count, 1}, c.root);
    if (c.shape != nullptr) hash.add(c.shape->dims());
  }
  void operator()(const ReduceScatterCall& c) const {
    reduction(c.op, c.dtype);
    hash.add(c.counts);
    if (c.shape != nullptr) hash.add(c.shape->dims());
  }
  void operator()(const BroadcastCall& c) const {
    rooted({&c.bytes, 1}, c.root);
    hash.add(fnv1a(c.topic));
  }
  void operator()(const AllGatherCall& c) const {
    hash.add(c.bytes);
    hash.add(fnv1a(c.topic));
  }
  void operator()(const GatherCall& c) const { rooted(c.bytes, c.root); }
  void operator()(const ScatterCall& c) const { rooted(c.bytes, c.root); }
  // Ranks see different sizes; those that exchange compare them.
  void operator()(const AllToAllCall&) const {}

  void reduction(ReduceOp op, DType dtype) const {
    hash.add(static_cast<uint64_t>(op));
    hash.add(static_cast<uint64_t>(dtype));
  }
  void rooted(std::span<const int64_t> sizes, int root) const {
    hash.add(sizes);
    hash.add(static_cast<uint64_t>(root));
  }
};

}  // namespace

std::string_view kind_of(const Call& call) { return std::visit(Kind{}, call); }
std::string describe(const Call& call) { return std::visit(Description{}, call); }
int64_t bytes_of(const Call& call) { return std::visit(Bytes{}, call); }

std::optional<Error> find_mistake(const Call& call, int rank, int size) {
  std::string fault = std::visit(Fault{rank, size}, call);
  if (fault.empty()) fault = fault_of_memory(std::visit(MemoryOf{rank}, call), rank);
  if (fault.empty()) return std::nullopt;
  return Error(Code::kInvalidArgument, describe(call) + ": " + fault);
}

bool same(const Call& a, const Call& b) { return fingerprint(a, 0) == fingerprint(b, 0); }

Error mismatch(std::optional<uint64_t> collective, int rank_a, std::string_view a, int rank_b,
               std::string_view b) {
  return mismatch(collective, rank_a, a, str("rank ", rank_b, " for ", b));
}

Error mismatch(std::optional<uint64_t> collective, int rank, std::string_view call,
               std::string_view others) {
  return Error(Code::kInvalidArgument,
               str("the ranks of a group must make the same calls, but ",
                   collective ? str("in its collective ", *collective, " ") : "", "rank ", rank,
                   " asks for ", call, " and ", others));
}

Fingerprint fingerprint(const Call& call, uint64_t sequence) {
  Hash hash;
  hash.add(call.index());
  std::visit(Content{hash}, call);
  return {sequence, hash.value()};
}

}  // namespace cohort
