#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/random.h"
#include "core/collective/call.h"
#include "core/tensor/tensor.h"

namespace cohort::testing {

inline constexpr ReduceOp kAllOps[] = {ReduceOp::kSum,   ReduceOp::kMean,    ReduceOp::kMin,
                                       ReduceOp::kMax,   ReduceOp::kProduct, ReduceOp::kBitAnd,
                                       ReduceOp::kBitOr, ReduceOp::kBitXor};
inline constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16,
                                     DType::kFloat16, DType::kInt32,   DType::kInt64,
                                     DType::kUInt8};
bool allowed(ReduceOp op, DType dtype);

// What `rank` brings to a collective: small numbers, so that every op but a mean is exact.
Tensor elements(DType dtype, int rank, uint64_t seed, int64_t count);
// What a plain loop makes of the elements of all ranks.
Tensor combined(DType dtype, ReduceOp op, int size, uint64_t seed, int64_t count);
// Equal bits, or nearly equal numbers for a mean of floating numbers.
void expect_result(const Tensor& actual, const Tensor& expected, ReduceOp op,
                   const std::string& what);

// One rank's side of one collective, with its memory and what must come of it.
class Exercise {
 public:
  // Exercises for the same (size, seed) belong together; kind, sizes, dtype, op, root, and whether
  // memory is shared follow from the seed. `kind` is an index into Call.
  Exercise(int rank, int size, uint64_t seed, size_t kind, int64_t max_count);
  Exercise(const Exercise&) = delete;
  Exercise& operator=(const Exercise&) = delete;

  const Call& call() const { return call_; }
  // Fails the test if a target is wrong, or memory changed that must not.
  void check() const;

 private:
  void make_barrier();
  void make_all_reduce();
  void make_reduce();
  void make_reduce_scatter();
  void make_broadcast();
  void make_all_gather();
  void make_gather();
  void make_scatter();
  void make_all_to_all();

  int64_t draw_count();
  std::vector<int64_t> draw_sizes();
  void draw_reduction();
  // A tensor that the call reads and must leave as it is.
  const void* reads(const Tensor& tensor);
  // Memory that must hold `expected` in the end.
  void* writes(const Tensor& before, const Tensor& expected);

  const int rank_, size_;
  const uint64_t seed_;
  const int64_t max_count_;
  RandomStream stream_;
  DType dtype_ = DType::kFloat32;
  ReduceOp op_ = ReduceOp::kMax;  // exact
  int root_ = 0;
  std::vector<Segment> segments_;
  std::vector<int64_t> sizes_, more_sizes_;
  struct Memory {
    Tensor tensor, expected;
    bool exact;
  };
  std::vector<Memory> memory_;
  Call call_;
};

}  // namespace cohort::testing
