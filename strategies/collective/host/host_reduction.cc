#include "strategies/collective/host/host_reduction.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/collective/copy_bytes.h"
#include "core/collective/reduction.h"

namespace cohort {
namespace {

constexpr auto kInline = static_cast<int64_t>(Post::kInlineBytes);
// A long slice is taken in blocks, so that all ranks end together whatever slows one of them down:
// long enough to hide what taking one costs, and for all threads of a rank, but no more than these.
constexpr int64_t kBlockBytes = int64_t{1} << 19, kMostBlocks = 32;

}  // namespace

HostReduction::HostReduction(const HostRank& host)
    : host_(host),
      cursors_(static_cast<size_t>(host.size)),
      sources_(static_cast<size_t>(host.size)) {
  targets_.reserve(static_cast<size_t>(host.size) + 1);
}

void HostReduction::clear(DType dtype, ReduceOp op) {
  dtype_ = dtype;
  op_ = op;
  element_bytes_ = static_cast<int64_t>(dtype_size(dtype));
  total_ = 0;
  root_ = -1;
  runs_.clear();
  parts_ = {};
  scattered_target_ = nullptr;
}

void HostReduction::add_run(const void* source, void* target, int64_t count) {
  if (count == 0) return;
  const auto* const from = static_cast<const char*>(source);
  auto* const to = static_cast<char*>(target);
  const int64_t begin = total_;
  total_ += count;
  if (!runs_.empty()) {
    Run& last = runs_.back();
    const bool follows = from == last.source + bytes(last.count);
    const bool same_target = (to == nullptr && last.target == nullptr) ||
                             (last.target != nullptr && to == last.target + bytes(last.count));
    if (follows && same_target) {
      last.count += count;
      return;
    }
  }
  runs_.push_back({begin, count, from, to});
}

void HostReduction::set(const AllReduceCall& call) {
  clear(call.dtype, call.op);
  for (const Segment& segment : call.segments)
    add_run(segment.source, segment.target, segment.count);
}

void HostReduction::set(const ReduceCall& call) {
  clear(call.dtype, call.op);
  root_ = call.root;
  add_run(call.source, host_.rank == call.root ? call.target : nullptr, call.count);
}

void HostReduction::set(const ReduceScatterCall& call) {
  clear(call.dtype, call.op);
  parts_ = call.counts;
  scattered_target_ = static_cast<char*>(call.target);
  const auto own = parts_.begin() + host_.rank;
  own_part_ = std::accumulate(parts_.begin(), own, int64_t{0});
  largest_part_ = *std::max_element(parts_.begin(), parts_.end());
  add_run(call.source, nullptr, std::accumulate(own, parts_.end(), own_part_));
}

template <typename F>
void HostReduction::for_each_piece(int64_t begin, int64_t end, F&& f) const {
  auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                              [](int64_t at, const Run& r) { return at < r.begin + r.count; });
  for (; begin < end; ++run) {
    const int64_t offset = begin - run->begin;
    const int64_t count = std::min(end - begin, run->count - offset);
    f(*run, offset, count);
    begin += count;
  }
}

void HostReduction::announce(Post& post) {
  post.direct = 1;
  if (bytes(total_) <= kInline) {
    char* at = post.payload;
    for (const Run& run : runs_) {
      std::memcpy(at, run.source, static_cast<size_t>(bytes(run.count)));
      at += bytes(run.count);
    }
    return;
  }
  post.taken.store(0, std::memory_order_relaxed);
  post.direct = runs_.size() <= Post::kRuns;
  for (size_t i = 0; i < runs_.size() && post.direct != 0; ++i) {
    const Run& run = runs_[i];
    const int64_t size = bytes(run.count);
    const auto source = host_.memory.locate(run.source, size, post);
    const auto target =
        host_.memory.locate_target(run.target, run.target == nullptr ? 0 : size, post);
    post.direct = source && target;
    if (post.direct != 0) post.run(static_cast<int>(i)) = {*source, *target, size};
  }
  post.num_runs = static_cast<int32_t>(runs_.size());
}

HostPath HostReduction::choose(uint64_t turn, bool reachable) const {
  if (bytes(total_) <= kInline) return HostPath::kInline;
  for (int r = 0; r < host_.size; ++r)
    reachable = reachable && host_.control.post(r, turn).direct != 0;
  return reachable ? HostPath::kDirect : HostPath::kStaged;
}

// Every rank for itself: to share the work would take another meeting.
void HostReduction::reduce_inline(uint64_t turn) {
  const auto take = [&](int64_t offset, void* target, int64_t count) {
    for (int r = 0; r < host_.size; ++r)
      sources_[static_cast<size_t>(r)] = host_.control.post(r, turn).payload + bytes(offset);
    reduce_elements(op_, dtype_, sources_, {&target, 1}, 0, count);
  };
  if (!parts_.empty())
    return take(own_part_, scattered_target_, parts_[static_cast<size_t>(host_.rank)]);
  for (const Run& run : runs_)
    if (run.target != nullptr) take(run.begin, run.target, run.count);
}

void HostReduction::reduce_direct(uint64_t turn) {
  cursors_at_ = std::numeric_limits<int64_t>::max();
  if (!parts_.empty())  // nobody else can write what a reduce-scatter leaves to this rank
    return reduce_part(turn, {own_part_, own_part_ + parts_[static_cast<size_t>(host_.rank)]});
  for (int i = 0; i < host_.size; ++i) reduce_blocks(turn, (host_.rank + i) % host_.size);
}

void HostReduction::keep_targets(const Error& error) const {
  try {
    for (const Run& run : runs_)
      if (run.target != nullptr) host_.memory.take_back(run.target, bytes(run.count));
  } catch (const Error& exhausted) {
    throw Error(error.code(),
                error.message() + "; its memory must not be used again: " + exhausted.message(),
                error.peer());
  }
}

void HostReduction::reduce_blocks(uint64_t turn, int rank) {
  const Part slice = part_of(total_, rank, host_.size);
  const int64_t blocks = std::clamp<int64_t>(bytes(slice.size()) / kBlockBytes, 1, kMostBlocks);
  if (blocks == 1) {  // its rank need not ask
    if (rank == host_.rank) reduce_part(turn, slice);
    return;
  }
  std::atomic<uint32_t>& taken = host_.control.post(rank, turn).taken;
  while (taken.load(std::memory_order_relaxed) < blocks) {
    const int64_t i = taken.fetch_add(1, std::memory_order_relaxed);
    if (i >= blocks || host_.meeting.lost()) return;
    const Part block = part_of(slice.size(), i, blocks);
    reduce_part(turn, {slice.begin + block.begin, slice.begin + block.end});
  }
}

void HostReduction::reduce_part(uint64_t turn, Part part) {
  move_cursors(turn, part.begin);
  char* scattered = scattered_target_;
  while (cursors_at_ < part.end) {
    int64_t count = part.end - cursors_at_;
    targets_.clear();
    for (int r = 0; r < host_.size; ++r) {
      const Cursor& cursor = cursors_[static_cast<size_t>(r)];
      if (cursor.left == 0) refuse_peer(host_, r);
      count = std::min(count, cursor.left);
      sources_[static_cast<size_t>(r)] = cursor.source;
      if (cursor.target != nullptr) targets_.push_back(cursor.target);
    }
    if (scattered != nullptr) {
      targets_.push_back(scattered);
      scattered += bytes(count);
    }
    if (!targets_.empty()) reduce_elements(op_, dtype_, sources_, targets_, 0, count);
    move_cursors(turn, cursors_at_ + count);
  }
}

void HostReduction::move_cursors(uint64_t turn, int64_t begin) {
  const bool again = begin < cursors_at_;
  for (int r = 0; r < host_.size; ++r) {
    Cursor& cursor = cursors_[static_cast<size_t>(r)];
    if (again) cursor = {-1, 0, nullptr, nullptr};
    advance(cursor, turn, r, again ? begin : begin - cursors_at_);
  }
  cursors_at_ = begin;
}

// Moves on by `elements`, into the next runs where one ends. A cursor at the very end stays there.
void HostReduction::advance(Cursor& cursor, uint64_t turn, int rank, int64_t elements) const {
  const Post& post = host_.control.post(rank, turn);
  const int runs = read_count(post.num_runs, Post::kRuns);
  while (elements > 0 || cursor.left == 0) {
    const int64_t step = std::min(elements, cursor.left);
    elements -= step;
    cursor.left -= step;
    if (cursor.left > 0) {
      cursor.source += bytes(step);
      if (cursor.target != nullptr) cursor.target += bytes(step);
      return;
    }
    if (++cursor.run >= runs) {
      if (elements > 0) refuse_peer(host_, rank);
      return;
    }
    const SharedRun run = post.run(cursor.run);
    const bool wanted = run.target.slot != Location::kEmpty;
    cursor.source = host_.memory.resolve(rank, run.source, run.bytes);
    cursor.target = wanted ? host_.memory.resolve(rank, run.target, run.bytes) : nullptr;
    if (run.bytes <= 0 || run.bytes % element_bytes_ != 0 || cursor.source == nullptr ||
        (wanted && cursor.target == nullptr))
      refuse_peer(host_, rank);
    cursor.left = run.bytes / element_bytes_;
  }
}

int64_t HostReduction::window_elements() const {
  const int64_t room = static_cast<int64_t>(ControlBlock::kStagingBytes) / element_bytes_;
  return parts_.empty() ? room : room / host_.size / kPartUnit * kPartUnit;
}

int64_t HostReduction::num_windows() const {
  const int64_t elements = parts_.empty() ? total_ : largest_part_;
  return (elements + window_elements() - 1) / window_elements();
}

HostReduction::Slice HostReduction::slice(int64_t window, int rank) const {
  const int64_t size = window_elements();
  if (parts_.empty()) {
    const int64_t begin = window * size, count = std::min(size, total_ - begin);
    const Part own = part_of(count, rank, host_.size);
    return {begin + own.begin, begin + own.end, own.begin};
  }
  const int64_t part = std::accumulate(parts_.begin(), parts_.begin() + rank, int64_t{0});
  const int64_t count = parts_[static_cast<size_t>(rank)];
  return {part + std::min(window * size, count), part + std::min((window + 1) * size, count),
          rank * size};
}

// What the others reduce. This rank's own slice need not be staged.
void HostReduction::stage(int64_t window) {
  char* const area = host_.control.staging(host_.rank, window);
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    const Slice theirs = slice(window, r);
    char* at = area + bytes(theirs.place);
    for_each_piece(theirs.begin, theirs.end, [&](const Run& run, int64_t offset, int64_t count) {
      copy_bytes(run.source + bytes(offset), at, bytes(count));
      at += bytes(count);
    });
  }
}

bool HostReduction::has_readers() const {
  return parts_.empty() && (root_ < 0 || root_ != host_.rank);
}

void HostReduction::reduce_staged(int64_t window) {
  const Slice own = slice(window, host_.rank);
  int64_t place = own.place;
  for_each_piece(own.begin, own.end, [&](const Run& run, int64_t offset, int64_t count) {
    for (int r = 0; r < host_.size; ++r)
      sources_[static_cast<size_t>(r)] = host_.control.staging(r, window) + bytes(place);
    sources_[static_cast<size_t>(host_.rank)] = run.source + bytes(offset);
    targets_.clear();
    if (run.target != nullptr) targets_.push_back(run.target + bytes(offset));
    if (!parts_.empty())
      targets_.push_back(scattered_target_ + bytes(run.begin + offset - own_part_));
    if (has_readers()) targets_.push_back(host_.control.result(host_.rank, window) + bytes(place));
    reduce_elements(op_, dtype_, sources_, targets_, 0, count);
    place += count;
  });
}

void HostReduction::copy_results(int64_t window) {
  if (!parts_.empty()) return;
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    const Slice theirs = slice(window, r);
    const char* at = host_.control.result(r, window) + bytes(theirs.place);
    for_each_piece(theirs.begin, theirs.end, [&](const Run& run, int64_t offset, int64_t count) {
      if (run.target != nullptr) copy_bytes(at, run.target + bytes(offset), bytes(count));
      at += bytes(count);
    });
  }
}

}  // namespace cohort
