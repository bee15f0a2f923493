#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/base/threads.h"
#include "core/collective/communicator.h"

namespace cohort {
namespace {

// Elements that one rank combines before it moves to the next block, so that the accumulator stays
// in cache.
constexpr int64_t kBlock = 4096;

struct Call {
  std::span<const Segment> segments;
  DType dtype;
  ReduceOp op;
};

bool same_call(const Call& a, const Call& b) {
  return a.dtype == b.dtype && a.op == b.op &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const Segment& x, const Segment& y) { return x.count == y.count; });
}

// What the ranks of one group share: a reusable barrier that an abort breaks, and each rank's
// current call.
class Group {
 public:
  explicit Group(int size) : calls(static_cast<size_t>(size)), size_(size) {}

  void barrier() {
    std::unique_lock lock(mutex_);
    const int64_t generation = generation_;
    if (!error_ && ++arrived_ == size_) {
      arrived_ = 0;
      ++generation_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return error_ || generation_ != generation; });
    if (generation_ == generation) throw *error_;
  }

  void abort(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
    changed_.notify_all();
  }

  std::vector<Call> calls;  // each rank writes its own before a barrier and reads all after it

 private:
  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0;
  int64_t generation_ = 0;
  std::optional<Error> error_;
};

template <typename A>
A combine(ReduceOp op, A a, A b) {
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
  }
  return a;
}

// Half types accumulate in float, so that the result is rounded once.
template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<bfloat16> {
  using type = float;
};
template <>
struct Accumulator<float16> {
  using type = float;
};

// Reduces elements [begin, end) of one segment over all ranks, in rank order, into every rank's
// target.
template <typename T>
void reduce_range(const std::vector<Call>& calls, size_t segment, int64_t begin, int64_t end) {
  using A = typename Accumulator<T>::type;
  const ReduceOp op = calls[0].op;
  A sum[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t n = std::min(kBlock, end - at);
    for (size_t r = 0; r < calls.size(); ++r) {
      const T* source = static_cast<const T*>(calls[r].segments[segment].source) + at;
      if (r == 0) {
        for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<A>(source[i]);
      } else if (op == ReduceOp::kSum || op == ReduceOp::kMean) {
        for (int64_t i = 0; i < n; ++i) sum[i] += static_cast<A>(source[i]);
      } else {
        for (int64_t i = 0; i < n; ++i) sum[i] = combine(op, sum[i], static_cast<A>(source[i]));
      }
    }
    if (op == ReduceOp::kMean)
      for (int64_t i = 0; i < n; ++i)
        sum[i] = static_cast<A>(sum[i] / static_cast<A>(calls.size()));
    for (const Call& call : calls) {
      T* target = static_cast<T*>(call.segments[segment].target) + at;
      for (int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(sum[i]);
    }
  }
}

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->calls.size()); }
  void barrier() override { group_->barrier(); }
  void abort(const Error& error) override { group_->abort(error); }

  void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) override {
    group_->calls[static_cast<size_t>(rank_)] = {segments, dtype, op};
    group_->barrier();
    if (const auto mistake = find_mistake()) {
      // The others may still be reading this rank's segments.
      group_->barrier();
      throw *mistake;
    }
    dispatch(NumberTypes{}, dtype, "all_reduce", [&]<typename T>() { reduce_slice<T>(); });
    group_->barrier();
  }

 private:
  // Every rank sees the same calls, so every rank finds the same.
  std::optional<Error> find_mistake() const {
    const Call& first = group_->calls[0];
    if (first.dtype == DType::kBool)
      return Error(Code::kInvalidArgument, "all_reduce: bool tensors cannot be reduced");
    for (size_t r = 1; r < group_->calls.size(); ++r) {
      const Call& other = group_->calls[r];
      if (same_call(first, other)) continue;
      return Error(Code::kInvalidArgument,
                   str("all_reduce: replica 0 reduces ", first.segments.size(), " tensors of ",
                       first.dtype, " but replica ", r, " ", other.segments.size(), " of ",
                       other.dtype, "; dtype, op and sizes must be equal on all replicas"));
    }
    return std::nullopt;
  }

  // This rank's contiguous share of the bucket that the segments form together.
  template <typename T>
  void reduce_slice() {
    const std::vector<Call>& calls = group_->calls;
    int64_t total = 0;
    for (const Segment& s : calls[0].segments) total += s.count;
    const int64_t first = total * rank_ / size(), last = total * (rank_ + 1) / size();
    int64_t offset = 0;
    for (size_t i = 0; i < calls[0].segments.size(); ++i) {
      const int64_t count = calls[0].segments[i].count;
      const int64_t begin = std::clamp<int64_t>(first - offset, 0, count);
      const int64_t end = std::clamp<int64_t>(last - offset, 0, count);
      parallel_for(end - begin, kBlock,
                   [&](int64_t b, int64_t e) { reduce_range<T>(calls, i, begin + b, begin + e); });
      offset += count;
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(int size) {
  if (size < 1) invalid("a group needs at least 1 rank, got ", size);
  const auto group = std::make_shared<Group>(size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < size; ++r)
    communicators.push_back(std::make_unique<InProcessCommunicator>(group, r));
  return communicators;
}

}  // namespace cohort
