#include "tests/collective/exercise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <variant>

#include <gtest/gtest.h>

namespace cohort::testing {
namespace {

// 1, 2 or 3, without a pattern in `i`.
int64_t element(int rank, uint64_t seed, int64_t i) {
  const uint64_t at = static_cast<uint64_t>(i) * 8 + static_cast<uint64_t>(rank) + seed * 977;
  return 1 + static_cast<int64_t>((at * 0x9E3779B97F4A7C15u >> 33) % 3);
}

int64_t combine(ReduceOp op, int64_t a, int64_t b) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return a + b;
    case ReduceOp::kMin:
      return std::min(a, b);
    case ReduceOp::kMax:
      return std::max(a, b);
    case ReduceOp::kProduct:
      return a * b;
    case ReduceOp::kBitAnd:
      return a & b;
    case ReduceOp::kBitOr:
      return a | b;
    case ReduceOp::kBitXor:
      return a ^ b;
  }
  return 0;
}

Tensor bytes_of(int rank, uint64_t seed, int64_t count) {
  Tensor tensor(DType::kUInt8, {count});
  for (int64_t i = 0; i < count; ++i)
    tensor.data<uint8_t>()[i] = static_cast<uint8_t>(element(rank, seed, i) * 61 + i);
  return tensor;
}

Tensor filled(DType dtype, int64_t count) { return Tensor::full(dtype, {count}, 77); }

Tensor joined(const std::vector<Tensor>& parts) {
  int64_t total = 0;
  for (const Tensor& part : parts) total += part.num_elements();
  Tensor all(DType::kUInt8, {total});
  int64_t at = 0;
  for (const Tensor& part : parts) {
    if (part.bytes() > 0) std::memcpy(all.data<uint8_t>() + at, part.raw(), part.bytes());
    at += part.num_elements();
  }
  return all;
}

size_t at(int rank) { return static_cast<size_t>(rank); }

}  // namespace

bool allowed(ReduceOp op, DType dtype) {
  if (is_bitwise(op)) return !is_floating(dtype);
  return op != ReduceOp::kMean || is_floating(dtype);
}

Tensor elements(DType dtype, int rank, uint64_t seed, int64_t count) {
  Tensor tensor(dtype, {count});
  dispatch(NumberTypes{}, dtype, "a test", [&]<typename T>() {
    for (int64_t i = 0; i < count; ++i)
      tensor.data<T>()[i] = static_cast<T>(static_cast<float>(element(rank, seed, i)));
  });
  return tensor;
}

Tensor combined(DType dtype, ReduceOp op, int size, uint64_t seed, int64_t count) {
  Tensor tensor(dtype, {count});
  dispatch(NumberTypes{}, dtype, "a test", [&]<typename T>() {
    for (int64_t i = 0; i < count; ++i) {
      int64_t value = element(0, seed, i);
      for (int r = 1; r < size; ++r) value = combine(op, value, element(r, seed, i));
      if constexpr (std::is_integral_v<T>)
        tensor.data<T>()[i] = static_cast<T>(value);
      else if constexpr (sizeof(T) == 8)
        tensor.data<T>()[i] = static_cast<T>(value) / (op == ReduceOp::kMean ? size : 1);
      else
        tensor.data<T>()[i] = static_cast<T>(static_cast<float>(value) /
                                             static_cast<float>(op == ReduceOp::kMean ? size : 1));
    }
  });
  return tensor;
}

void expect_result(const Tensor& actual, const Tensor& expected, ReduceOp op,
                   const std::string& what) {
  ASSERT_EQ(actual.spec(), expected.spec()) << what;
  if (expected.bytes() == 0 || std::memcmp(actual.raw(), expected.raw(), expected.bytes()) == 0)
    return;
  const Tensor a = actual.cast(DType::kFloat64), b = expected.cast(DType::kFloat64);
  const double tolerance = op == ReduceOp::kMean ? 1e-2 : 0;  // half types may round it otherwise
  for (int64_t i = 0; i < a.num_elements(); ++i)
    ASSERT_NEAR(a.data<double>()[i], b.data<double>()[i], tolerance)
        << what << ", element " << i << " of " << a.num_elements();
}

Exercise::Exercise(int rank, int size, uint64_t seed, size_t kind, int64_t max_count)
    : rank_(rank), size_(size), seed_(seed), max_count_(max_count), stream_(seed) {
  root_ = static_cast<int>(stream_.below(static_cast<uint64_t>(size)));
  constexpr void (Exercise::*kMakers[])() = {
      &Exercise::make_barrier,        &Exercise::make_all_reduce, &Exercise::make_reduce,
      &Exercise::make_reduce_scatter, &Exercise::make_broadcast,  &Exercise::make_all_gather,
      &Exercise::make_gather,         &Exercise::make_scatter,    &Exercise::make_all_to_all};
  static_assert(std::size(kMakers) == std::variant_size_v<Call>);
  (this->*kMakers[kind])();
}

void Exercise::check() const {
  for (const auto& [tensor, expected, exact] : memory_)
    expect_result(tensor, expected, exact ? ReduceOp::kMax : op_,
                  str("rank ", rank_, ", ", describe(call_), ", seed ", seed_));
}

// Most are small, some nothing at all.
int64_t Exercise::draw_count() {
  const uint64_t kind = stream_.below(8);
  if (kind == 0) return 0;
  const int64_t limit = kind < 6 ? std::min<int64_t>(max_count_, 100) : max_count_;
  return static_cast<int64_t>(stream_.below(static_cast<uint64_t>(limit) + 1));
}

std::vector<int64_t> Exercise::draw_sizes() {
  std::vector<int64_t> sizes(at(size_));
  for (int64_t& size : sizes) size = draw_count();
  return sizes;
}

void Exercise::draw_reduction() {
  do {
    dtype_ = kNumbers[stream_.below(std::size(kNumbers))];
    op_ = kAllOps[stream_.below(std::size(kAllOps))];
  } while (!allowed(op_, dtype_));
}

const void* Exercise::reads(const Tensor& tensor) {
  memory_.push_back({tensor, tensor.clone(), true});
  return memory_.back().tensor.raw();
}

void* Exercise::writes(const Tensor& before, const Tensor& expected) {
  memory_.push_back({before, expected, false});
  return memory_.back().tensor.raw();
}

void Exercise::make_barrier() { call_ = BarrierCall{}; }

void Exercise::make_all_reduce() {
  draw_reduction();
  const uint64_t segments = stream_.below(7);
  for (uint64_t s = 0; s < segments; ++s) {
    const uint64_t seed = seed_ + s;
    const int64_t count = draw_count();
    const uint64_t memory = stream_.below(4);
    const int unwilling = static_cast<int>(stream_.below(at(size_)));
    const Tensor own = elements(dtype_, rank_, seed, count);
    const Tensor result = combined(dtype_, op_, size_, seed, count);
    if (memory == 0 && rank_ == unwilling) {
      segments_.push_back({reads(own), nullptr, count});
    } else if (memory < 2) {
      const void* const source = reads(own);
      segments_.push_back({source, writes(filled(dtype_, count), result), count});
    } else {
      void* const both = writes(own, result);
      segments_.push_back({both, both, count});
    }
  }
  call_ = AllReduceCall{segments_, dtype_, op_};
}

void Exercise::make_reduce() {
  draw_reduction();
  const int64_t count = draw_count();
  const Tensor own = elements(dtype_, rank_, seed_, count);
  const Tensor result = combined(dtype_, op_, size_, seed_, count);
  ReduceCall call{nullptr, nullptr, count, dtype_, op_, root_};
  if (rank_ != root_)
    call.source = reads(own);
  else if (stream_.below(2) == 0)
    call.source = call.target = writes(own, result);
  else
    call.source = reads(own), call.target = writes(filled(dtype_, count), result);
  call_ = call;
}

void Exercise::make_reduce_scatter() {
  draw_reduction();
  sizes_ = draw_sizes();
  const int64_t total = std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
  const int64_t begin = std::accumulate(sizes_.begin(), sizes_.begin() + rank_, int64_t{0});
  const int64_t count = sizes_[at(rank_)];
  Tensor own = elements(dtype_, rank_, seed_, total);
  const Tensor part =
      combined(dtype_, op_, size_, seed_, total).slice_rows(begin, begin + count).clone();
  ReduceScatterCall call{nullptr, nullptr, sizes_, dtype_, op_};
  if (stream_.below(2) == 0) {  // into its place
    Tensor expected = own.clone();
    expected.slice_rows(begin, begin + count).assign(part);
    char* const memory = static_cast<char*>(writes(own, expected));
    call.source = memory;
    call.target = memory + begin * static_cast<int64_t>(dtype_size(dtype_));
  } else {
    call.source = reads(own);
    call.target = writes(filled(dtype_, count), part);
  }
  call_ = call;
}

void Exercise::make_broadcast() {
  const int64_t count = draw_count();
  const Tensor value = bytes_of(root_, seed_, count);
  BroadcastCall call{nullptr, nullptr, count, root_};
  const bool in_place = stream_.below(2) == 0;
  if (rank_ == root_ && in_place)
    call.source = call.target = writes(value.clone(), value);
  else
    call.target = writes(filled(DType::kUInt8, count), value);
  if (rank_ == root_ && !in_place) call.source = reads(value.clone());
  call_ = call;
}

void Exercise::make_all_gather() {
  sizes_ = draw_sizes();
  std::vector<Tensor> parts;
  for (int r = 0; r < size_; ++r) parts.push_back(bytes_of(r, seed_, sizes_[at(r)]));
  const Tensor all = joined(parts);
  AllGatherCall call{nullptr, nullptr, sizes_};
  if (stream_.below(2) == 0) {
    const int64_t begin = std::accumulate(sizes_.begin(), sizes_.begin() + rank_, int64_t{0});
    Tensor memory = filled(DType::kUInt8, all.num_elements());
    memory.slice_rows(begin, begin + sizes_[at(rank_)]).assign(parts[at(rank_)]);
    call.target = writes(memory, all);
    call.source = static_cast<char*>(call.target) + begin;
  } else {
    call.source = reads(parts[at(rank_)]);
    call.target = writes(filled(DType::kUInt8, all.num_elements()), all);
  }
  call_ = call;
}

void Exercise::make_gather() {
  sizes_ = draw_sizes();
  std::vector<Tensor> parts;
  for (int r = 0; r < size_; ++r) parts.push_back(bytes_of(r, seed_, sizes_[at(r)]));
  GatherCall call{reads(parts[at(rank_)]), nullptr, sizes_, root_};
  const Tensor all = joined(parts);
  if (rank_ == root_) call.target = writes(filled(DType::kUInt8, all.num_elements()), all);
  call_ = call;
}

void Exercise::make_scatter() {
  sizes_ = draw_sizes();
  std::vector<Tensor> parts;
  for (int r = 0; r < size_; ++r) parts.push_back(bytes_of(r, seed_, sizes_[at(r)]));
  ScatterCall call{nullptr, nullptr, sizes_, root_};
  if (rank_ == root_) call.source = reads(joined(parts));
  call.target = writes(filled(DType::kUInt8, sizes_[at(rank_)]), parts[at(rank_)]);
  call_ = call;
}

void Exercise::make_all_to_all() {
  std::vector<std::vector<int64_t>> sent(at(size_));  // by sender and receiver
  for (auto& sizes : sent) sizes = draw_sizes();
  const auto part = [&](int from, int to) {
    return bytes_of(from * size_ + to, seed_, sent[at(from)][at(to)]);
  };
  std::vector<Tensor> outgoing, incoming;
  for (int r = 0; r < size_; ++r) {
    outgoing.push_back(part(rank_, r));
    incoming.push_back(part(r, rank_));
    more_sizes_.push_back(sent[at(r)][at(rank_)]);
  }
  sizes_ = sent[at(rank_)];
  const Tensor all = joined(incoming);
  const void* const source = reads(joined(outgoing));
  call_ = AllToAllCall{source, sizes_, writes(filled(DType::kUInt8, all.num_elements()), all),
                       more_sizes_};
}

}  // namespace cohort::testing
