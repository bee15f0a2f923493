#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>

#include "core/base/part.h"
#include "core/collective/copy_bytes.h"
#include "core/collective/message_board.h"
#include "core/collective/parts.h"
#include "core/collective/queued_communicator.h"
#include "core/collective/reduction.h"
#include "core/collective/rendezvous.h"
#include "core/collective/split.h"

namespace cohort {
namespace {

// What the ranks of one group share.
struct Group {
  Group(int size, InProcessReduction reduction)
      : calls(static_cast<size_t>(size)), reduction(reduction), rendezvous(size) {}

  void abort(const Error& error) {
    rendezvous.abort(error);
    messages.abort(error);
  }

  std::vector<Call> calls;  // each rank writes its own before a meeting and reads all after it
  const InProcessReduction reduction;
  Rendezvous rendezvous;
  MessageBoard messages;
  std::mutex mutex;
  std::map<int, std::shared_ptr<Group>> parts;  // by color, while the group is being split
};

const void* at(const void* memory, int64_t bytes) {
  return static_cast<const char*>(memory) + bytes;
}
void* at(void* memory, int64_t bytes) { return static_cast<char*>(memory) + bytes; }

int64_t total_elements(const AllReduceCall& call) {
  int64_t total = 0;
  for (const Segment& segment : call.segments) total += segment.count;
  return total;
}

// Where part `rank` begins.
int64_t offset(std::span<const int64_t> sizes, size_t rank) {
  return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(rank),
                         int64_t{0});
}

// What is wrong with the calls that all ranks made together, in rank order, as the group's
// collective of this number, or nothing.
std::optional<Error> find_mistake(std::span<const Call> calls, uint64_t number) {
  const int size = static_cast<int>(calls.size());
  for (int r = 1; r < size; ++r)
    if (const auto& [first, other] = std::pair(calls[0], calls[static_cast<size_t>(r)]);
        !same(first, other))
      return mismatch(number, 0, describe(first), r, describe(other));
  for (int r = 0; r < size; ++r)
    if (auto mistake = cohort::find_mistake(calls[static_cast<size_t>(r)], r, size)) return mistake;
  if (!std::holds_alternative<AllToAllCall>(calls[0])) return std::nullopt;
  for (size_t s = 0; s < calls.size(); ++s)
    for (size_t r = 0; r < calls.size(); ++r)
      if (std::get<AllToAllCall>(calls[s]).send_bytes[r] !=
          std::get<AllToAllCall>(calls[r]).receive_bytes[s])
        return mismatch(number, static_cast<int>(s), describe(calls[s]), static_cast<int>(r),
                        describe(calls[r]));
  return std::nullopt;
}

class InProcessCommunicator final : public QueuedCommunicator {
 public:
  InProcessCommunicator(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  // What waits in the background, here or on other ranks, would wait for ever.
  ~InProcessCommunicator() override {
    group_->abort(Error(Code::kUnavailable, str("rank ", rank_, " has left its group")));
    group_->messages.withdraw(rank_);
    end_queue();
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_->calls.size()); }

  std::unique_ptr<Communicator> split(int color, int key) override {
    const GroupPart own = choose_part(*this, color, key);
    std::unique_ptr<Communicator> part;
    if (color >= 0) {
      const std::lock_guard lock(group_->mutex);
      auto& shared = group_->parts[color];
      if (shared == nullptr) shared = std::make_shared<Group>(own.size(), group_->reduction);
      part = std::make_unique<InProcessCommunicator>(shared, own.rank);
    }
    barrier();
    {
      const std::lock_guard lock(group_->mutex);
      group_->parts.clear();
    }
    barrier();
    return parts_.add(std::move(part));
  }

  void abort(const Error& error) override {
    group_->abort(error);
    parts_.abort(error);
  }

 private:
  int64_t post(const SendCall& call) override { return group_->messages.post(rank_, call); }
  int64_t post(const ReceiveCall& call) override { return group_->messages.post(rank_, call); }
  Received wait_for_message(int64_t id) override { return group_->messages.wait(id); }
  bool is_message_done(int64_t id) override { return group_->messages.is_done(id); }

  // Meets the others, does this rank's part of the work, for which it may read their memory, and
  // waits until they have done theirs.
  void run_now(const Call& call) override {
    group_->calls[static_cast<size_t>(rank_)] = call;
    group_->rendezvous.meet();
    const auto begin = std::chrono::steady_clock::now();
    // All ranks see the same calls, so that all find the same.
    const auto mistake = find_mistake(group_->calls, ++collectives_);
    if (!mistake) std::visit([&](const auto& own) { work(own); }, call);
    group_->rendezvous.part();
    if (mistake) {
      group_->abort(*mistake);
      throw *mistake;
    }
    observe(call, begin);
  }

  template <typename C>
  const C& call(int rank) const {
    return std::get<C>(group_->calls[static_cast<size_t>(rank)]);
  }
  const Segment& segment(int rank, size_t index) const {
    return call<AllReduceCall>(rank).segments[index];
  }
  size_t own() const { return static_cast<size_t>(rank_); }
  // This rank's slice of `total` elements.
  Part slice(int64_t total) const { return part_of(total, rank_, size()); }

  // None of these throws.
  void work(const BarrierCall&) {}

  void work(const AllReduceCall& own) {
    if (group_->reduction == InProcessReduction::kSlices)
      reduce_slice(total_elements(own));
    else
      reduce_on_first_rank();
  }

  // Every rank a slice, all of it into the root's target.
  void work(const ReduceCall& own) {
    sources_.clear();
    for (int r = 0; r < size(); ++r) sources_.push_back(call<ReduceCall>(r).source);
    void* const target = call<ReduceCall>(own.root).target;
    const auto [begin, end] = slice(own.count);
    reduce_elements(own.op, own.dtype, sources_, {&target, 1}, begin, end);
  }

  void work(const ReduceScatterCall& own) {
    const int64_t begin =
        offset(own.counts, this->own()) * static_cast<int64_t>(dtype_size(own.dtype));
    sources_.clear();
    for (int r = 0; r < size(); ++r)
      sources_.push_back(at(call<ReduceScatterCall>(r).source, begin));
    void* const target = own.target;
    reduce_elements(own.op, own.dtype, sources_, {&target, 1}, 0, own.counts[this->own()]);
  }

  void work(const BroadcastCall& own) {
    copy_bytes(call<BroadcastCall>(own.root).source, own.target, own.bytes);
  }

  void work(const AllGatherCall& own) {
    for (int r = 0; r < size(); ++r)
      copy_bytes(call<AllGatherCall>(r).source,
                 at(own.target, offset(own.bytes, static_cast<size_t>(r))),
                 own.bytes[static_cast<size_t>(r)]);
  }

  void work(const GatherCall& own) {
    copy_bytes(own.source, at(call<GatherCall>(own.root).target, offset(own.bytes, this->own())),
               own.bytes[this->own()]);
  }

  void work(const ScatterCall& own) {
    copy_bytes(at(call<ScatterCall>(own.root).source, offset(own.bytes, this->own())), own.target,
               own.bytes[this->own()]);
  }

  void work(const AllToAllCall& own) {
    for (int r = 0; r < size(); ++r) {
      const auto& other = call<AllToAllCall>(r);
      const auto sender = static_cast<size_t>(r);
      copy_bytes(at(other.source, offset(other.send_bytes, this->own())),
                 at(own.target, offset(own.receive_bytes, sender)), own.receive_bytes[sender]);
    }
  }

  // This rank's contiguous share of the bucket that the segments form together, into everybody's
  // targets.
  void reduce_slice(int64_t total) {
    const auto [first, last] = slice(total);
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
    const auto& own = call<AllReduceCall>(rank_);
    if (!targets_.empty()) reduce_elements(own.op, own.dtype, sources_, targets_, begin, end);
  }

  // Rank 0 reduces into the first target that anybody wants, from which the others copy.
  void reduce_on_first_rank() {
    const auto& own = call<AllReduceCall>(rank_);
    const auto segments = own.segments;
    if (rank_ == 0)
      for (size_t i = 0; i < segments.size(); ++i)
        reduce(i, 0, segments[i].count, holder(i), std::min(holder(i) + 1, size()));
    group_->rendezvous.part();
    for (size_t i = 0; i < segments.size(); ++i)
      if (segments[i].target != nullptr)
        copy_bytes(segment(holder(i), i).target, segments[i].target,
                   segments[i].count * static_cast<int64_t>(dtype_size(own.dtype)));
  }

  // The first rank that wants a segment's result; size() where none does.
  int holder(size_t index) const {
    int rank = 0;
    while (rank < size() && segment(rank, index).target == nullptr) ++rank;
    return rank;
  }

  std::shared_ptr<Group> group_;
  int rank_;
  Parts parts_;
  uint64_t collectives_ = 0;
  std::vector<const void*> sources_;  // of the segment in work
  std::vector<void*> targets_;
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
