#include "strategies/collective/mpi/collectives.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/part.h"
#include "core/collective/bucket.h"
#include "core/collective/reduction.h"

namespace cohort::mpi {
namespace {

using Range = ElementRange;

bool is_small(int64_t bytes) { return bytes <= kInlineBytes; }

int64_t sum(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

size_t index(int rank) { return static_cast<size_t>(rank); }

// Where part `rank` begins.
int64_t offset(std::span<const int64_t> sizes, int rank) { return sum(sizes.first(index(rank))); }

const char* at(const void* memory, int64_t bytes) {
  return static_cast<const char*>(memory) + bytes;
}
char* at(void* memory, int64_t bytes) { return static_cast<char*>(memory) + bytes; }

std::vector<char> copy_of(const void* memory, int64_t bytes) {
  if (!is_small(bytes) || bytes == 0) return {};
  return {at(memory, 0), at(memory, bytes)};
}

void copy(const void* source, void* target, int64_t bytes) {
  if (source != target && bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
}

// --- Reductions as buckets of which each rank combines a part

Bucket bucket_of(const AllReduceCall& c, int /*rank*/) { return {c.segments, c.dtype}; }

Bucket bucket_of(const ReduceCall& c, int rank) {
  const Segment segment{c.source, rank == c.root ? c.target : nullptr, c.count};
  return {{&segment, 1}, c.dtype};
}

Bucket bucket_of(const ReduceScatterCall& c, int rank) {
  const auto width = static_cast<int64_t>(dtype_size(c.dtype));
  const int64_t begin = offset(c.counts, rank), count = c.counts[index(rank)];
  const int64_t end = begin + count;
  const Segment segments[] = {{c.source, nullptr, begin},
                              {at(c.source, begin * width), c.target, count},
                              {at(c.source, end * width), nullptr, sum(c.counts) - end}};
  return {segments, c.dtype};
}

std::vector<Range> parts_of(int64_t total, int ranks) {
  std::vector<Range> parts;
  for (int r = 0; r < ranks; ++r) {
    const Part part = part_of(total, r, ranks);
    parts.push_back({part.begin, part.size()});
  }
  return parts;
}
std::vector<Range> parts_of(const AllReduceCall&, const Bucket& bucket, int ranks) {
  return parts_of(bucket.total(), ranks);
}
std::vector<Range> parts_of(const ReduceCall&, const Bucket& bucket, int ranks) {
  return parts_of(bucket.total(), ranks);
}
std::vector<Range> parts_of(const ReduceScatterCall& c, const Bucket&, int) {
  std::vector<Range> parts;
  for (const int64_t count : c.counts)
    parts.push_back({parts.empty() ? 0 : parts.back().begin + parts.back().count, count});
  return parts;
}

// Of which elements a rank wants the result.
Range wanted(const AllReduceCall&, const Bucket& bucket, int) { return {0, bucket.total()}; }
Range wanted(const ReduceCall& c, const Bucket& bucket, int rank) {
  return {0, rank == c.root ? bucket.total() : 0};
}
Range wanted(const ReduceScatterCall& c, const Bucket&, int rank) {
  return {offset(c.counts, rank), c.counts[index(rank)]};
}

// Whether a rank gets the parts that others have combined.
bool collects(const AllReduceCall&, int) { return true; }
bool collects(const ReduceCall& c, int rank) { return rank == c.root; }
bool collects(const ReduceScatterCall&, int) { return false; }

template <typename C>
std::vector<char> small_sources(const C& call, int rank, int to) {
  const Bucket bucket = bucket_of(call, rank);
  if (!is_small(bucket.bytes(bucket.total()))) return {};
  const Range range = wanted(call, bucket, to);
  std::vector<char> sources(static_cast<size_t>(bucket.bytes(range.count)));
  bucket.pack(range, sources.data());
  return sources;
}

// --- What goes with the news of a call

struct Attachment {
  int rank, to;

  std::vector<char> operator()(const BarrierCall&) const { return {}; }
  std::vector<char> operator()(const AllReduceCall& c) const { return small_sources(c, rank, to); }
  std::vector<char> operator()(const ReduceCall& c) const { return small_sources(c, rank, to); }
  std::vector<char> operator()(const ReduceScatterCall& c) const {
    return small_sources(c, rank, to);
  }
  std::vector<char> operator()(const BroadcastCall& c) const {
    return rank == c.root ? copy_of(c.source, c.bytes) : std::vector<char>();
  }
  std::vector<char> operator()(const AllGatherCall& c) const {
    return copy_of(c.source, c.bytes[index(rank)]);
  }
  std::vector<char> operator()(const GatherCall& c) const {
    return to == c.root ? copy_of(c.source, c.bytes[index(rank)]) : std::vector<char>();
  }
  std::vector<char> operator()(const ScatterCall& c) const {
    if (rank != c.root) return {};
    return copy_of(at(c.source, offset(c.bytes, to)), c.bytes[index(to)]);
  }
  std::vector<char> operator()(const AllToAllCall& c) const {
    return copy_of(at(c.source, offset(c.send_bytes, to)), c.send_bytes[index(to)]);
  }
};

// --- What follows it

// What one rank gives another, and gets from it.
struct Flow {
  const char* out = nullptr;
  int64_t out_bytes = 0;
  char* in = nullptr;
  int64_t in_bytes = 0;
};

class Work {
 public:
  Work(Traffic& traffic, const std::vector<Control>& heard)
      : traffic_(traffic),
        heard_(heard),
        rank_(traffic.rank()),
        size_(traffic.size()),
        flows_(heard.size()) {}

  void operator()(const BarrierCall&) {}
  void operator()(const AllReduceCall& c) { reduce(c); }
  void operator()(const ReduceCall& c) { reduce(c); }
  void operator()(const ReduceScatterCall& c) { reduce(c); }

  // Large values go out in parts, one to each other rank, which these then exchange.
  void operator()(const BroadcastCall& c) {
    if (rank_ == c.root) copy(c.source, c.target, c.bytes);
    if (is_small(c.bytes)) {
      if (rank_ != c.root) copy(attached(c.root, c.bytes), c.target, c.bytes);
      return;
    }
    if (size_ == 1) return;
    const std::vector<Range> parts = broadcast_parts(c);
    const Range own = parts[index(rank_)];
    for (int r = 0; r < size_; ++r) {
      const Range part = parts[index(r)];
      if (rank_ == c.root) flow(r) = {.out = at(c.target, part.begin), .out_bytes = part.count};
    }
    if (rank_ != c.root) flow(c.root) = {.in = at(c.target, own.begin), .in_bytes = own.count};
    move();
    if (rank_ == c.root) return;
    for (int r = 0; r < size_; ++r) {
      const Range part = parts[index(r)];
      flow(r) = {at(c.target, own.begin), own.count, at(c.target, part.begin), part.count};
    }
    flow(c.root) = {};
    move();
  }

  void operator()(const AllGatherCall& c) {
    for (int r = 0; r < size_; ++r)
      flow(r) = {at(c.source, 0), c.bytes[index(rank_)], at(c.target, offset(c.bytes, r)),
                 c.bytes[index(r)]};
    take_attached();
    move();
  }

  void operator()(const GatherCall& c) {
    flow(c.root) = {.out = at(c.source, 0), .out_bytes = c.bytes[index(rank_)]};
    if (rank_ == c.root)
      for (int r = 0; r < size_; ++r)
        flow(r).in = at(c.target, offset(c.bytes, r)), flow(r).in_bytes = c.bytes[index(r)];
    take_attached();
    move();
  }

  void operator()(const ScatterCall& c) {
    if (rank_ == c.root)
      for (int r = 0; r < size_; ++r)
        flow(r) = {.out = at(c.source, offset(c.bytes, r)), .out_bytes = c.bytes[index(r)]};
    flow(c.root).in = at(c.target, 0);
    flow(c.root).in_bytes = c.bytes[index(rank_)];
    take_attached();
    move();
  }

  void operator()(const AllToAllCall& c) {
    check_sizes(c);
    for (int r = 0; r < size_; ++r)
      flow(r) = {at(c.source, offset(c.send_bytes, r)), c.send_bytes[index(r)],
                 at(c.target, offset(c.receive_bytes, r)), c.receive_bytes[index(r)]};
    take_attached();
    move();
  }

 private:
  Flow& flow(int rank) { return flows_[index(rank)]; }

  const char* attached(int rank, int64_t bytes) const {
    const std::vector<char>& data = heard_[index(rank)].payload;
    if (std::ssize(data) != bytes)
      throw Error(Code::kDataLoss,
                  str(traffic_.name(rank), " has attached ", data.size(),
                      " bytes to the news of its call, which has ", bytes, " to attach"),
                  traffic_.peer(rank));
    return data.data();
  }

  // Small data has come already, and gone.
  void take_attached() {
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      Flow& f = flow(r);
      if (is_small(f.out_bytes)) f.out_bytes = 0;
      if (!is_small(f.in_bytes)) continue;
      copy(attached(r, f.in_bytes), f.in, f.in_bytes);
      f.in_bytes = 0;
    }
  }

  // Piece by piece; one is copied while the next one moves.
  void move() {
    copy(flow(rank_).out, flow(rank_).in, flow(rank_).in_bytes);
    flow(rank_) = {};
    const int64_t piece = traffic_.pool().bytes();
    int64_t longest = 0;
    for (const Flow& f : flows_) longest = std::max({longest, f.out_bytes, f.in_bytes});
    Batch last(traffic_);
    for (int64_t begin = 0; begin < longest; begin += piece) {
      Batch batch(traffic_);
      for_each_other([&](int r) {
        const Flow& f = flow(r);
        send(batch, r, f.out, begin, std::min(piece, f.out_bytes - begin));
        if (f.in_bytes > begin) batch.receive(r, std::min(piece, f.in_bytes - begin));
      });
      if (begin > 0) finish(last, begin - piece);
      last = std::move(batch);
    }
    if (longest > 0) finish(last, (longest - 1) / piece * piece);
    std::fill(flows_.begin(), flows_.end(), Flow{});
  }

  void send(Batch& batch, int rank, const char* memory, int64_t begin, int64_t bytes) {
    if (bytes <= 0) return;
    Piece piece = traffic_.pool().take();
    copy(memory + begin, piece.get(), bytes);
    batch.send(rank, std::move(piece), bytes);
  }

  void finish(Batch& batch, int64_t begin) {
    batch.wait_for_receives();
    size_t next = 0;
    for_each_other([&](int r) {
      const Flow& f = flow(r);
      if (f.in_bytes > begin)
        copy(batch.received(next++), f.in + begin,
             std::min(traffic_.pool().bytes(), f.in_bytes - begin));
    });
    batch.wait_for_sends();
  }

  // In another order on each rank, so that not all send to the same one at once.
  template <typename F>
  void for_each_other(const F& f) {
    for (int i = 1; i < size_; ++i) f((rank_ + i) % size_);
  }

  std::vector<Range> broadcast_parts(const BroadcastCall& c) const {
    std::vector<Range> parts = parts_of(c.bytes, size_ - 1);
    parts.insert(parts.begin() + c.root, Range{});
    return parts;
  }

  // Only the ranks' sizes together show whether an all-to-all is right: all look at all of them.
  void check_sizes(const AllToAllCall& c) {
    const auto n = heard_.size();
    std::vector<int64_t> rows(2 * n * n);
    const auto row = [&](size_t rank) { return rows.data() + 2 * n * rank; };
    std::copy(c.send_bytes.begin(), c.send_bytes.end(), row(index(rank_)));
    std::copy(c.receive_bytes.begin(), c.receive_bytes.end(), row(index(rank_)) + n);
    const auto bytes = static_cast<int64_t>(2 * n * sizeof(int64_t));
    for (size_t r = 0; r < n; ++r)
      flows_[r] = {at(static_cast<const void*>(row(index(rank_))), 0), bytes,
                   at(static_cast<void*>(row(r)), 0), bytes};
    move();
    for (size_t s = 0; s < n; ++s)
      for (size_t r = 0; r < n; ++r)
        if (row(s)[r] != row(r)[n + s]) refuse(c, static_cast<int>(s), static_cast<int>(r));
  }

  [[noreturn]] void refuse(const AllToAllCall& c, int sender, int receiver) {
    const std::string own = describe(c);
    if (rank_ == sender || rank_ == receiver) traffic_.tell(own);
    const std::string a = rank_ == sender ? own : traffic_.hear(sender);
    const std::string b = rank_ == receiver ? own : traffic_.hear(receiver);
    throw mismatch(traffic_.collective(), sender, a, receiver, b);
  }

  template <typename C>
  void reduce(const C& call) {
    const Bucket bucket = bucket_of(call, rank_);
    if (is_small(bucket.bytes(bucket.total())))
      reduce_attached(call, bucket);
    else
      reduce_parts(call, bucket);
  }

  // Every rank that wants the result has all sources.
  template <typename C>
  void reduce_attached(const C& call, const Bucket& bucket) {
    const Range range = wanted(call, bucket, rank_);
    if (range.count == 0) return;
    std::vector<char> own(static_cast<size_t>(bucket.bytes(range.count))), result(own.size());
    std::vector<const void*> sources;
    for (int r = 0; r < size_; ++r)
      sources.push_back(r == rank_ ? bucket.view(range, own.data())
                                   : attached(r, bucket.bytes(range.count)));
    void* const target = result.data();
    reduce_elements(call.op, bucket.dtype(), sources, {&target, 1}, 0, range.count);
    bucket.unpack(range, result.data());
  }

  // Piece by piece: all send their sources of everybody's part, each combines its own and sends
  // the result to those that want it. Sources of the next piece move meanwhile.
  template <typename C>
  void reduce_parts(const C& call, const Bucket& bucket) {
    const std::vector<Range> parts = parts_of(call, bucket, size_);
    const int64_t unit = traffic_.pool().bytes() / bucket.bytes(1);
    const auto piece = [&](int rank, int64_t begin) {
      const Range& part = parts[index(rank)];
      return Range{part.begin + begin, std::clamp<int64_t>(part.count - begin, 0, unit)};
    };
    int64_t longest = 0;
    for (const Range& part : parts) longest = std::max(longest, part.count);
    const auto send_sources = [&](int64_t begin) {
      Batch batch(traffic_);
      for_each_other([&](int r) {
        if (const Range theirs = piece(r, begin); theirs.count > 0) {
          Piece memory = traffic_.pool().take();
          bucket.pack(theirs, memory.get());
          batch.send(r, std::move(memory), bucket.bytes(theirs.count));
        }
        if (const Range own = piece(rank_, begin); own.count > 0)
          batch.receive(r, bucket.bytes(own.count));
      });
      return batch;
    };
    const auto send_result = [&](Batch& sources, int64_t begin) {
      Batch batch(traffic_);
      const Range own = piece(rank_, begin);
      const Piece result = own.count > 0 ? combine(call.op, bucket, own, sources) : nullptr;
      for_each_other([&](int r) {
        if (own.count > 0 && collects(call, r)) batch.send(r, result, bucket.bytes(own.count));
        if (const Range theirs = piece(r, begin); theirs.count > 0 && collects(call, rank_))
          batch.receive(r, bucket.bytes(theirs.count));
      });
      return batch;
    };
    const auto take_results = [&](Batch& results, int64_t begin) {
      results.wait_for_receives();
      size_t next = 0;
      for_each_other([&](int r) {
        if (const Range theirs = piece(r, begin); theirs.count > 0 && collects(call, rank_))
          bucket.unpack(theirs, results.received(next++));
      });
      results.wait_for_sends();
    };
    Batch sources = send_sources(0), results(traffic_);
    for (int64_t begin = 0; begin < longest; begin += unit) {
      Batch next(traffic_);
      if (begin + unit < longest) next = send_sources(begin + unit);
      Batch combined = send_result(sources, begin);
      if (begin > 0) take_results(results, begin - unit);
      sources.wait_for_sends();
      results = std::move(combined);
      sources = std::move(next);
    }
    if (longest > 0) take_results(results, (longest - 1) / unit * unit);
  }

  // The combined sources of this rank's piece, which are also put where this rank wants them.
  Piece combine(ReduceOp op, const Bucket& bucket, Range own, Batch& received) {
    received.wait_for_receives();
    const Piece scratch = traffic_.pool().take();
    std::vector<const void*> sources(index(size_));
    sources[index(rank_)] = bucket.view(own, scratch.get());
    size_t next = 0;
    for_each_other([&](int r) { sources[index(r)] = received.received(next++); });
    Piece result = traffic_.pool().take();
    void* const target = result.get();
    reduce_elements(op, bucket.dtype(), sources, {&target, 1}, 0, own.count);
    bucket.unpack(own, result.get());
    return result;
  }

  Traffic& traffic_;
  const std::vector<Control>& heard_;
  const int rank_, size_;
  std::vector<Flow> flows_;  // by rank
};

}  // namespace

std::vector<char> attachment(const Call& call, int rank, int to) {
  return std::visit(Attachment{rank, to}, call);
}

void carry_out(const Call& call, Traffic& traffic, const std::vector<Control>& heard) {
  std::visit(Work(traffic, heard), call);
}

}  // namespace cohort::mpi
