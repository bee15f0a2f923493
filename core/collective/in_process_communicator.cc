#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/base/threads.h"
#include "core/collective/background_queue.h"
#include "core/collective/call.h"
#include "core/collective/reduction.h"
#include "core/collective/rendezvous.h"

namespace cohort {
namespace {

// Slices begin at multiples of this many elements, so that ranks do not write the same cache line.
constexpr int64_t kSliceUnit = 64;
// What one thread copies at least.
constexpr int64_t kCopyGrain = int64_t{1} << 17;

// What the ranks of one group share.
struct Group {
  Group(int size, InProcessReduction reduction)
      : calls(static_cast<size_t>(size)), reduction(reduction), rendezvous(size) {}

  std::vector<Call> calls;  // each rank writes its own before a meeting and reads all after it
  const InProcessReduction reduction;
  Rendezvous rendezvous;
};

void copy(const void* source, void* target, int64_t bytes) {
  if (source == target) return;
  parallel_for(bytes, kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(target) + begin, static_cast<const char*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

int64_t total_elements(const AllReduceCall& call) {
  int64_t total = 0;
  for (const Segment& segment : call.segments) total += segment.count;
  return total;
}

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  // What waits in the background, here or on other ranks, would wait for ever.
  ~InProcessCommunicator() override {
    abort(Error(Code::kUnavailable, str("rank ", rank_, " has left its group")));
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->calls.size()); }

  void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) override {
    queue_.drain();
    all_reduce_now(segments, dtype, op);
  }

  int64_t start_all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) override {
    if (size() > 1) return queue_.start(segments, dtype, op);
    all_reduce_now(segments, dtype, op);
    return 0;
  }

  void wait(int64_t operation) override {
    if (size() > 1) queue_.wait(operation);
  }

  void all_gather(const void* source, void* target, std::span<const int64_t> bytes) override {
    queue_.drain();
    int64_t total = 0;
    for (const int64_t part : bytes) total += part;
    collective(AllGatherCall{source, target, bytes}, "AllGather", total, [&] { gather(); });
  }

  void broadcast(const void* source, void* target, int64_t bytes, int root) override {
    queue_.drain();
    collective(BroadcastCall{source, target, bytes, root}, "Broadcast", bytes,
               [&] { copy(call<BroadcastCall>(root).source, target, bytes); });
  }

  void barrier() override {
    queue_.drain();
    collective(BarrierCall{}, "Barrier", 0, [] {});
  }

  void abort(const Error& error) override { group_->rendezvous.abort(error); }
  void set_observer(CommunicationObserver observer) override { observer_ = std::move(observer); }

 private:
  void all_reduce_now(std::span<const Segment> segments, DType dtype, ReduceOp op) {
    const AllReduceCall call{segments, dtype, op};
    const int64_t total = total_elements(call);
    collective(call, "AllReduce", total * static_cast<int64_t>(dtype_size(dtype)), [&] {
      if (group_->reduction == InProcessReduction::kSlices)
        reduce_slice(total);
      else
        reduce_on_first_rank();
    });
  }

  // Meets the others, does this rank's part of the work, for which it may read their memory, and
  // waits until they have done theirs. `work` must not throw.
  template <typename Work>
  void collective(const Call& call, std::string_view kind, int64_t bytes, const Work& work) {
    group_->calls[static_cast<size_t>(rank_)] = call;
    group_->rendezvous.meet();
    const auto begin = std::chrono::steady_clock::now();
    // All ranks see the same calls, so that all find the same.
    const auto mistake = find_mistake(group_->calls);
    if (!mistake) work();
    group_->rendezvous.part();
    if (mistake) {
      abort(*mistake);
      throw *mistake;
    }
    if (observer_ && bytes > 0) observer_({kind, bytes, begin, std::chrono::steady_clock::now()});
  }

  template <typename C>
  const C& call(int rank) const {
    return std::get<C>(group_->calls[static_cast<size_t>(rank)]);
  }
  const Segment& segment(int rank, size_t index) const {
    return call<AllReduceCall>(rank).segments[index];
  }

  // This rank's contiguous share of the bucket that the segments form together, into everybody's
  // targets.
  void reduce_slice(int64_t total) {
    const auto boundary = [&](int rank) {
      return rank == size() ? total : total / kSliceUnit * rank / size() * kSliceUnit;
    };
    const int64_t first = boundary(rank_), last = boundary(rank_ + 1);
    int64_t offset = 0;
    for (size_t i = 0; i < call<AllReduceCall>(rank_).segments.size(); ++i) {
      const int64_t count = segment(rank_, i).count;
      const int64_t begin = std::clamp<int64_t>(first - offset, 0, count);
      const int64_t end = std::clamp<int64_t>(last - offset, 0, count);
      if (begin < end) reduce(i, begin, end, 0, size());
      offset += count;
    }
  }

  // Elements of one segment, into the targets of ranks [first_target, last_target).
  void reduce(size_t index, int64_t begin, int64_t end, int first_target, int last_target) {
    sources_.clear();
    targets_.clear();
    for (int r = 0; r < size(); ++r) sources_.push_back(segment(r, index).source);
    for (int r = first_target; r < last_target; ++r)
      if (void* target = segment(r, index).target) targets_.push_back(target);
    const auto& [segments, dtype, op] = call<AllReduceCall>(rank_);
    if (!targets_.empty()) reduce_elements(op, dtype, sources_, targets_, begin, end);
  }

  // Rank 0 reduces into the first target that anybody wants, from which the others copy.
  void reduce_on_first_rank() {
    const auto& [segments, dtype, op] = call<AllReduceCall>(rank_);
    if (rank_ == 0)
      for (size_t i = 0; i < segments.size(); ++i)
        reduce(i, 0, segments[i].count, holder(i), std::min(holder(i) + 1, size()));
    group_->rendezvous.part();
    for (size_t i = 0; i < segments.size(); ++i)
      if (segments[i].target != nullptr)
        copy(segment(holder(i), i).target, segments[i].target,
             segments[i].count * static_cast<int64_t>(dtype_size(dtype)));
  }

  // The first rank that wants a segment's result; size() where none does.
  int holder(size_t index) const {
    int rank = 0;
    while (rank < size() && segment(rank, index).target == nullptr) ++rank;
    return rank;
  }

  void gather() {
    const auto& [own, target, bytes] = call<AllGatherCall>(rank_);
    auto* to = static_cast<char*>(target);
    for (int r = 0; r < size(); ++r) {
      copy(call<AllGatherCall>(r).source, to, bytes[static_cast<size_t>(r)]);
      to += bytes[static_cast<size_t>(r)];
    }
  }

  std::shared_ptr<Group> group_;
  int rank_;
  CommunicationObserver observer_;
  std::vector<const void*> sources_;  // of the segment in work
  std::vector<void*> targets_;
  BackgroundQueue queue_{[this](std::span<const Segment> segments, DType dtype, ReduceOp op) {
    all_reduce_now(segments, dtype, op);
  }};
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_in_process_communicators(
    int size, InProcessReduction reduction) {
  if (size < 1) invalid("a group needs at least 1 rank, got ", size);
  const auto group = std::make_shared<Group>(size, reduction);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int r = 0; r < size; ++r)
    communicators.push_back(std::make_unique<InProcessCommunicator>(group, r));
  return communicators;
}

}  // namespace cohort
