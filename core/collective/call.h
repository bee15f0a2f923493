#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/base/error.h"
#include "core/collective/reduce_op.h"
#include "core/tensor/tensor.h"

// The collectives: what one rank asks of its group. Memory belongs to the caller and must stay
// until the call, or the wait for it, has returned. Parts lie one behind the other in rank order.
// Sizes are those of all ranks, so that every rank knows them: whoever does not, gathers them
// first, and says in a `topic`, a literal, what for: different ones are a mistake, so that no size
// is taken for what another call moves. Messages name the call by it.
namespace cohort {

// A part of a bucket: `count` elements that a rank reads from `source` and whose result goes to
// `target`, which may be the same memory, or null where this rank does not want the result.
struct Segment {
  const void* source;
  void* target;
  int64_t count;
};

// Returns when every rank has called it, and everything started before it has ended. `topic` says
// what the ranks come for, where they have to agree about that, and `purpose`, a literal, what for
// where it is no barrier of the program's own: different ones are a mistake.
struct BarrierCall {
  uint64_t topic = 0;
  std::string_view purpose = {};
};

// Combines the segments of all ranks element by element. Every rank gets the same bits, and the
// same on every run. Half types are added in float and rounded once; integers wrap around; NaN wins
// a min or max; integers have no mean, floating numbers no bitwise op, bool no reduction.
//
// `specs` are those of the caller's tensors, where it has some: the segments are those of `dtype`
// among them, in their order, and the others go in calls of their own. Specs that differ are then a
// mistake, although as many elements could be combined. All ranks give them, or none does.
struct AllReduceCall {
  std::span<const Segment> segments;
  DType dtype;
  ReduceOp op;
  std::span<const TensorSpec> specs = {};
};

// As AllReduceCall of one segment, but only rank `root` gets the result. `target` is not used
// elsewhere.
struct ReduceCall {
  const void* source;
  void* target;
  int64_t count;
  DType dtype;
  ReduceOp op;
  int root;
  const Shape* shape = nullptr;  // as AllReduceCall's specs
};

// Combines vectors of as many elements as `counts` adds up to; rank r gets elements of its own
// part, counts[r] of them, in `target`, which may be their place in `source`.
struct ReduceScatterCall {
  const void* source;
  void* target;
  std::span<const int64_t> counts;
  DType dtype;
  ReduceOp op;
  const Shape* shape = nullptr;  // of the whole; as AllReduceCall's specs
};

// Copies from `source` on rank `root` to `target` on every rank. `source` is not read elsewhere; on
// the root it may be `target`.
struct BroadcastCall {
  const void* source;
  void* target;
  int64_t bytes;
  int root;
  std::string_view topic = {};
};

// Puts every rank's part, bytes[r] of rank r, into every rank's `target`. This rank's is at
// `source`, which may be its place in `target`.
struct AllGatherCall {
  const void* source;
  void* target;
  std::span<const int64_t> bytes;
  std::string_view topic = {};
};

// As AllGatherCall, but only rank `root` has a target.
struct GatherCall {
  const void* source;
  void* target;
  std::span<const int64_t> bytes;
  int root;
};

// The reverse of GatherCall: rank `root` has the parts at `source`, each rank gets its own in
// `target`.
struct ScatterCall {
  const void* source;
  void* target;
  std::span<const int64_t> bytes;
  int root;
};

// The part send_bytes[r] at `source` goes to rank r; from rank r come receive_bytes[r], which must
// be what it sends. `source` and `target` do not overlap. These sizes differ from rank to rank.
struct AllToAllCall {
  const void* source;
  std::span<const int64_t> send_bytes;
  void* target;
  std::span<const int64_t> receive_bytes;
};

using Call = std::variant<BarrierCall, AllReduceCall, ReduceCall, ReduceScatterCall, BroadcastCall,
                          AllGatherCall, GatherCall, ScatterCall, AllToAllCall>;

// "AllReduce".
std::string_view kind_of(const Call& call);
// "an all-reduce (sum) of 2 float32 tensors with 5, 7 elements".
std::string describe(const Call& call);
// The bytes of the combined value, or that this rank's parts have together.
int64_t bytes_of(const Call& call);

// What a rank alone can see to be wrong with its call: kInvalidArgument.
std::optional<Error> find_mistake(const Call& call, int rank, int size);
// Whether two ranks may make these calls together, as far as they must be equal.
bool same(const Call& a, const Call& b);
// "the ranks of a group must make the same calls, but in its collective 3 rank 0 asks for ... and
// rank 1 for ...", of the descriptions of what they ask for. Collectives are counted from 1; none
// is named by who does not count them all.
Error mismatch(std::optional<uint64_t> collective, int rank_a, std::string_view a, int rank_b,
               std::string_view b);
// The same where `others` says who asks for what else: "another rank for something else".
Error mismatch(std::optional<uint64_t> collective, int rank, std::string_view call,
               std::string_view others);

// 16 bytes that are equal where `same` is true and the calls have the same place in the sequence of
// their group, for ranks that cannot look at each other's calls.
struct Fingerprint {
  uint64_t sequence = 0;
  uint64_t content = 0;
  bool operator==(const Fingerprint&) const = default;
};
Fingerprint fingerprint(const Call& call, uint64_t sequence);

}  // namespace cohort
