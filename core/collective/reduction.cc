#include "core/collective/reduction.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/base/prefetch.h"
#include "core/base/threads.h"
#include "core/base/wrapping.h"

namespace cohort {
namespace {

// What one thread takes at least: less is quicker done than handed out.
constexpr int64_t kGrainBytes = int64_t{1} << 16;
// What stays in the first-level cache while one source after the other is combined into it.
constexpr int64_t kBlockBytes = 2048;
// Several streams of reads and writes leave memory idle unless they are asked for ahead: a chunk of
// each at a time.
constexpr int64_t kChunkBytes = 512, kAheadBytes = 2048;

// Half types are combined in float, so that the result is rounded once.
template <typename T>
using Accumulator = std::conditional_t<sizeof(T) == 2, float, T>;

struct Addition {
  template <typename A>
  static A combine(A a, A b) {
    return wrapping_sum(a, b);
  }
};

// What is done to the combined value of all sources: nothing, but for a mean.
struct AsItIs {
  template <typename A>
  static A finish(A a, size_t /*sources*/) {
    return a;
  }
};

struct Sum : Addition, AsItIs {};

struct Mean : Addition {
  template <typename A>
  static A finish(A a, size_t sources) {
    return a / static_cast<A>(sources);
  }
};

struct Product : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    return static_cast<A>(static_cast<Wrapping<A>>(a) * static_cast<Wrapping<A>>(b));
  }
};

// A NaN on either side is the result of Min and Max.
struct Min : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    const A less = a < b ? a : b;  // b where that is NaN
    return a != a ? a : less;
  }
};

struct Max : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    const A greater = a > b ? a : b;
    return a != a ? a : greater;
  }
};

// Bitwise ops are for integers; callers have checked.
struct BitAnd : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) return static_cast<A>(a & b);
    return a;
  }
};

struct BitOr : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) return static_cast<A>(a | b);
    return a;
  }
};

struct BitXor : AsItIs {
  template <typename A>
  static A combine(A a, A b) {
    if constexpr (std::is_integral_v<A>) return static_cast<A>(a ^ b);
    return a;
  }
};

// Not inlined, because GCC would make the loop over sources the inner one, which is not a vector's.
template <typename T, typename Op>
[[gnu::noinline]] void combine_into(Accumulator<T>* sum, const T* source, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    sum[i] = Op::combine(sum[i], static_cast<Accumulator<T>>(source[i]));
}

// Source by source into a block, which is then copied to every target.
template <typename T, typename Op>
void reduce_blocks(std::span<const void* const> sources, std::span<void* const> targets,
                   int64_t begin, int64_t end) {
  using A = Accumulator<T>;
  constexpr int64_t kBlock = kBlockBytes / static_cast<int64_t>(sizeof(T));
  A sum[kBlock];
  T result[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    const T* first = static_cast<const T*>(sources[0]) + at;
    for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(first[i]);
    for (const void* source : sources.subspan(1))
      combine_into<T, Op>(sum, static_cast<const T*>(source) + at, n);
    for (int64_t i = 0; i < n; ++i) result[i] = static_cast<T>(Op::finish(sum[i], sources.size()));
    for (void* target : targets)
      std::memcpy(static_cast<T*>(target) + at, result, static_cast<size_t>(n) * sizeof(T));
  }
}

// As reduce_blocks for kCount sources and kTargets targets, in one pass: reads all, writes all.
template <typename T, typename Op, size_t kCount, size_t kTargets>
void reduce_straight(std::span<const void* const> sources, std::span<void* const> targets,
                     int64_t begin, int64_t end) {
  constexpr int64_t kChunk = kChunkBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kAhead = kAheadBytes / static_cast<int64_t>(sizeof(T));
  constexpr int64_t kLine = kCacheLine / sizeof(T);
  constexpr bool kInPlace = kTargets == kCount;  // as a rule
  const T* from[kCount];
  T* to[kTargets];
  for (size_t r = 0; r < kCount; ++r) from[r] = static_cast<const T*>(sources[r]);
  for (size_t r = 0; r < kTargets; ++r) to[r] = static_cast<T*>(targets[r]);
  for (int64_t at = begin; at < end; at += kChunk) {
    const int64_t chunk_end = std::min(at + kChunk, end);
    for (int64_t i = at + kAhead; i < std::min(chunk_end + kAhead, end); i += kLine)
      for (const T* source : from) prefetch(source + i, kInPlace);
#pragma GCC ivdep  // an element's targets may be its sources, but no other element's
    for (int64_t i = at; i < chunk_end; ++i) {
      auto sum = static_cast<Accumulator<T>>(from[0][i]);
      for (size_t r = 1; r < kCount; ++r)
        sum = Op::combine(sum, static_cast<Accumulator<T>>(from[r][i]));
      const T result = static_cast<T>(Op::finish(sum, kCount));
      for (T* target : to) target[i] = result;
    }
  }
}

// As reduce_blocks, in one pass where there are kCount sources and as many targets or one; whether
// that was so.
template <typename T, typename Op, size_t kCount>
bool reduced_straight(std::span<const void* const> sources, std::span<void* const> targets,
                      int64_t begin, int64_t end) {
  if (sources.size() != kCount) return false;
  if (targets.size() == kCount)
    reduce_straight<T, Op, kCount, kCount>(sources, targets, begin, end);
  else if (targets.size() == 1)
    reduce_straight<T, Op, kCount, 1>(sources, targets, begin, end);
  else
    return false;
  return true;
}

template <typename T, typename Op>
void reduce_range(std::span<const void* const> sources, std::span<void* const> targets,
                  int64_t begin, int64_t end) {
  // GCC does not vectorise the others' single pass.
  if constexpr (std::is_base_of_v<Addition, Op> && std::is_same_v<T, Accumulator<T>>) {
    if (reduced_straight<T, Op, 2>(sources, targets, begin, end) ||
        reduced_straight<T, Op, 3>(sources, targets, begin, end) ||
        reduced_straight<T, Op, 4>(sources, targets, begin, end))
      return;
  }
  reduce_blocks<T, Op>(sources, targets, begin, end);
}

template <typename F>
void with_op(ReduceOp op, DType dtype, F&& f) {
  switch (op) {
    case ReduceOp::kSum:
      return f.template operator()<Sum>();
    case ReduceOp::kMean:
      return f.template operator()<Mean>();
    case ReduceOp::kMin:
      return f.template operator()<Min>();
    case ReduceOp::kMax:
      return f.template operator()<Max>();
    case ReduceOp::kProduct:
      return f.template operator()<Product>();
    case ReduceOp::kBitAnd:
      return f.template operator()<BitAnd>();
    case ReduceOp::kBitOr:
      return f.template operator()<BitOr>();
    case ReduceOp::kBitXor:
      return f.template operator()<BitXor>();
  }
  fail(Code::kInternal, "no reduction ", static_cast<int64_t>(op), " of ", dtype);
}

}  // namespace

void reduce_elements(ReduceOp op, DType dtype, std::span<const void* const> sources,
                     std::span<void* const> targets, int64_t begin, int64_t end) {
  dispatch(NumberTypes{}, dtype, "a reduction", [&]<typename T>() {
    with_op(op, dtype, [&]<typename Op>() {
      parallel_for(end - begin, kGrainBytes / static_cast<int64_t>(sizeof(T)),
                   [&](int64_t b, int64_t e) {
                     reduce_range<T, Op>(sources, targets, begin + b, begin + e);
                   });
    });
  });
}

}  // namespace cohort
