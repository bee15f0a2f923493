#include "strategies/collective/hierarchical/levels.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "core/base/part.h"
#include "core/collective/copy_bytes.h"

namespace cohort::hierarchical {
namespace {

// Large enough that beginning a window costs little beside it, and small enough for the caches.
constexpr int64_t kWindowBytes = int64_t{8} << 20;

size_t at(int index) { return static_cast<size_t>(index); }

int64_t sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// In multiples of kPartUnit, and at least that.
int64_t window_of(int64_t bytes) {
  return std::max(kWindowBytes / bytes / kPartUnit, int64_t{1}) * kPartUnit;
}

const char* plus(const void* memory, int64_t bytes) {
  return static_cast<const char*>(memory) + bytes;
}
char* plus(void* memory, int64_t bytes) { return static_cast<char*>(memory) + bytes; }

}  // namespace

Levels::Levels(Topology topology, std::unique_ptr<HostCommunicator> host,
               std::vector<std::unique_ptr<Communicator>> lanes)
    : topology_(std::move(topology)),
      first_(topology_.first_lane(topology_.place())),
      last_(topology_.first_lane(topology_.place() + 1)),
      host_(std::move(host)),
      lanes_(std::move(lanes)) {}

void Levels::abort(const Error& error) {
  for (const auto& lane : lanes_) lane->abort(error);
  host_->abort(error);
}

char* Levels::Scratch::at_least(HostCommunicator& host, int64_t bytes) {
  if (buffer_ == nullptr || buffer_->bytes < static_cast<size_t>(bytes))
    buffer_ = host.allocate(static_cast<size_t>(std::max<int64_t>(bytes, 1)));
  return static_cast<char*>(buffer_->data);
}

Levels::LaneCalls::~LaneCalls() {
  while (!started_.empty()) try {
      wait_for_one();
    } catch (const Error&) {
    }
}

void Levels::LaneCalls::start(Communicator& lane, const Call& call) {
  started_.emplace_back(&lane, lane.start(call));
}

void Levels::LaneCalls::wait() {
  while (!started_.empty()) wait_for_one();
}

void Levels::LaneCalls::wait_for_one() {
  const auto [lane, operation] = started_.back();
  started_.pop_back();
  lane->wait(operation);
}

template <typename F>
void Levels::start_on_lanes(LaneCalls& calls, bool go_on, const F& call_of) {
  for (int lane = first_; lane < last_; ++lane) {
    const std::optional<Call> call = call_of(lane);
    Communicator& communicator = *lanes_[at(lane - first_)];
    if (!call) continue;
    if (go_on || lanes_.size() > 1)
      calls.start(communicator, *call);
    else
      communicator.run(*call);
  }
}

template <typename F>
void Levels::on_lanes(const F& call_of) {
  LaneCalls calls;
  guarded([&] {
    start_on_lanes(calls, false, call_of);
    calls.wait();
  });
}

template <typename F>
void Levels::guarded(const F& work) {
  try {
    work();
  } catch (const Error& error) {
    abort(error);
    throw;
  }
}

const void* Levels::widened(const PartialResult& partial, const void* elements, int64_t count) {
  if (!partial.is_half()) return elements;
  char* const wide = wide_.at_least(*host_, partial.bytes(count));
  partial.widen(elements, wide, count);
  return wide;
}

const void* Levels::finished(const PartialResult& partial, char* elements, int64_t count) {
  char* const target =
      partial.is_half() ? halves_.at_least(*host_, partial.bytes(count)) : elements;
  partial.finish(elements, target, count);
  return target;
}

// --- Reductions

void Levels::run(const AllReduceCall& call) {
  reduce(Bucket(call.segments, call.dtype), call.op, kEverybody);
}

void Levels::run(const ReduceCall& call) {
  const bool is_root = call.root == topology_.rank();
  const Segment segment{call.source, is_root ? call.target : nullptr, call.count};
  reduce(Bucket({&segment, 1}, call.dtype), call.op, call.root);
}

// While one window is on the lanes, the ranks of the host combine the next.
void Levels::reduce(const Bucket& bucket, ReduceOp op, int root) {
  const PartialResult partial(op, bucket.dtype(), topology_.size());
  const int64_t length = window_of(partial.bytes(1));
  Scratch* const sums[] = {&sums_, &next_sums_};
  std::optional<Window> windows[2];
  guarded([&] {
    int current = 0;
    for (int64_t begin = 0; begin < bucket.total(); begin += length, current = 1 - current) {
      Window& window = windows[current].emplace();
      window.range = {begin, std::min(length, bucket.total() - begin)};
      start_window(window, bucket, partial, root, *sums[current]);
      if (begin > 0) finish_window(*windows[1 - current], bucket, partial, root);
    }
    if (windows[1 - current]) finish_window(*windows[1 - current], bucket, partial, root);
  });
}

// The ranks of a host combine theirs, each the shares of its lanes; hosts combine those.
void Levels::start_window(Window& window, const Bucket& bucket, const PartialResult& partial,
                          int root, Scratch& sums) {
  const ElementRange range = window.range;
  const auto counts = topology_.place_shares(range.count);
  const void* own = bucket.source(range);
  if (own == nullptr) {
    char* const packed = packed_.at_least(*host_, bucket.bytes(range.count));
    bucket.pack(range, packed);
    own = packed;
  }
  own = widened(partial, own, range.count);
  window.sums = sums.at_least(*host_, partial.bytes(counts[at(topology_.place())]));
  host_->reduce_scatter(own, window.sums, counts, partial.dtype(), partial.op());

  window.segments.resize(at(last_ - first_));
  start_on_lanes(window.calls, range.count < bucket.total(), [&](int lane) -> std::optional<Call> {
    const int64_t count = topology_.share(range.count, lane);
    if (count == 0) return std::nullopt;
    const int64_t begin = topology_.begin(range.count, lane) - topology_.begin(range.count, first_);
    char* const share = window.sums + partial.bytes(begin);
    if (root != kEverybody)
      return ReduceCall{share,           share,        count,
                        partial.dtype(), partial.op(), topology_.host_of(root)};
    Segment& segment = window.segments[at(lane - first_)];
    segment = {share, share, count};
    return AllReduceCall{{&segment, 1}, partial.dtype(), partial.op()};
  });
}

// The ranks of a host tell each other the results.
void Levels::finish_window(Window& window, const Bucket& bucket, const PartialResult& partial,
                           int root) {
  window.calls.wait();
  if (root != kEverybody && topology_.host() != topology_.host_of(root)) return;
  const ElementRange range = window.range;
  const int64_t own_count = topology_.place_shares(range.count)[at(topology_.place())];
  const void* const results = finished(partial, window.sums, own_count);
  const auto bytes = topology_.place_shares(range.count, bucket.bytes(1));
  void* target = bucket.target(range);
  const bool in_place = target != nullptr;
  if (!in_place) target = results_.at_least(*host_, bucket.bytes(range.count));
  if (root == kEverybody)
    host_->all_gather(results, target, bytes);
  else
    host_->gather(results, target, bytes, topology_.place_of(root));
  if (!in_place && (root == kEverybody || root == topology_.rank()))
    bucket.unpack(range, static_cast<const char*>(target));
}

void Levels::run(const ReduceScatterCall& call) {
  const HostParts parts(topology_, call.counts);
  const PartialResult partial(call.op, call.dtype, topology_.size());
  const int64_t window = window_of(partial.bytes(topology_.num_hosts()));
  for (int64_t begin = 0; begin < parts.longest(); begin += window)
    scatter_window(call, parts, partial, begin, window);
}

template <typename F>
void Levels::for_each_by_lanes(const HostParts& parts, int64_t begin,
                               const std::vector<int64_t>& lengths, const F& f) const {
  for (int lane = 0; lane < topology_.num_lanes(); ++lane)
    for (int host = 0; host < topology_.num_hosts(); ++host) {
      const int64_t length = lengths[at(host)];
      parts.for_each(host, begin + topology_.begin(length, lane),
                     begin + topology_.begin(length, lane + 1), f);
    }
}

// What is combined lies by lanes, and within each by the hosts that get it.
void Levels::scatter_window(const ReduceScatterCall& call, const HostParts& parts,
                            const PartialResult& partial, int64_t begin, int64_t length) {
  const auto width = static_cast<int64_t>(dtype_size(call.dtype));
  const auto counts = lengths(parts, begin, length);
  char* const packed = packed_.at_least(*host_, sum(counts) * width);
  char* next = packed;
  for_each_by_lanes(parts, begin, counts, [&](int64_t offset, int64_t count) {
    copy_bytes(plus(call.source, offset * width), next, count * width);
    next += count * width;
  });
  const auto of_places = place_shares(counts);
  const void* const own = widened(partial, packed, sum(counts));
  char* const sums = sums_.at_least(*host_, partial.bytes(of_places[at(topology_.place())]));
  host_->reduce_scatter(own, sums, of_places, partial.dtype(), partial.op());

  const int64_t here = counts[at(topology_.host())];
  const int64_t first = topology_.begin(here, first_);
  const int64_t own_count = topology_.begin(here, last_) - first;
  // Lanes read before they write, each its own shares.
  char* const combined = results_.at_least(*host_, partial.bytes(own_count));
  std::vector<std::vector<int64_t>> of_lanes(at(last_ - first_));
  char* source = sums;
  on_lanes([&](int lane) -> std::optional<Call> {
    auto& of_lane = of_lanes[at(lane - first_)];
    of_lane = shares(counts, lane);
    const char* const from = source;
    source += partial.bytes(sum(of_lane));
    if (sum(of_lane) == 0) return std::nullopt;
    return ReduceScatterCall{from, combined + partial.bytes(topology_.begin(here, lane) - first),
                             of_lane, partial.dtype(), partial.op()};
  });
  if (here == 0) return;
  const void* const results = finished(partial, combined, own_count);
  // All of this host's, of which each rank takes its part.
  char* const all = packed_.at_least(*host_, here * width);
  host_->all_gather(results, all, topology_.place_shares(here, width));
  const int64_t part = parts.begin(topology_.rank());
  const int64_t from = std::max(begin, part);
  const int64_t to = std::min(begin + here, part + parts.size(topology_.rank()));
  if (from < to)
    copy_bytes(all + (from - begin) * width, plus(call.target, (from - part) * width),
               (to - from) * width);
}

// --- Copies

// To all ranks of the root's host, by the lanes to every other host, and there to all.
void Levels::run(const BroadcastCall& call) {
  const int root_host = topology_.host_of(call.root);
  const bool is_source = topology_.host() == root_host;
  if (is_source)
    host_->broadcast(call.source, call.target, call.bytes, topology_.place_of(call.root));
  on_lanes([&](int lane) -> std::optional<Call> {
    const int64_t bytes = topology_.share(call.bytes, lane);
    if (bytes == 0) return std::nullopt;
    char* const share = plus(call.target, topology_.begin(call.bytes, lane));
    return BroadcastCall{share, share, bytes, root_host};
  });
  if (!is_source)
    host_->all_gather(plus(call.target, topology_.begin(call.bytes, first_)), call.target,
                      topology_.place_shares(call.bytes));
}

void Levels::run(const AllGatherCall& call) {
  const HostParts parts(topology_, call.bytes);
  const int64_t window = window_of(topology_.num_hosts());
  for (int64_t begin = 0; begin < parts.longest(); begin += window)
    gather_window(call, parts, begin, window);
}

// The ranks of a host gather what they have, hosts exchange it, and the ranks of a host tell each
// other what came: by lanes, and within each by hosts.
void Levels::gather_window(const AllGatherCall& call, const HostParts& parts, int64_t begin,
                           int64_t length) {
  const auto bytes = lengths(parts, begin, length);
  const int64_t here = bytes[at(topology_.host())];
  char* const gathered = packed_.at_least(*host_, here);
  if (here > 0) {
    std::vector<int64_t> of_ranks;
    int64_t own = 0;  // where this rank's piece begins in its part
    for (const int r : topology_.neighbours()) {
      const int64_t from = std::max(begin, parts.begin(r));
      const int64_t to = std::min(begin + here, parts.begin(r) + parts.size(r));
      of_ranks.push_back(std::max<int64_t>(to - from, 0));
      if (r == topology_.rank() && from < to) own = from - parts.begin(r);
    }
    host_->all_gather(plus(call.source, own), gathered, of_ranks);
  }

  const auto of_places = place_shares(bytes);
  char* const own_lanes = sums_.at_least(*host_, of_places[at(topology_.place())]);
  std::vector<std::vector<int64_t>> of_lanes(at(last_ - first_));
  char* target = own_lanes;
  on_lanes([&](int lane) -> std::optional<Call> {
    auto& of_lane = of_lanes[at(lane - first_)];
    of_lane = shares(bytes, lane);
    char* const to = target;
    target += sum(of_lane);
    if (sum(of_lane) == 0) return std::nullopt;
    return AllGatherCall{gathered + topology_.begin(here, lane), to, of_lane};
  });
  char* const all = results_.at_least(*host_, sum(bytes));
  host_->all_gather(own_lanes, all, of_places);

  const char* next = all;
  for_each_by_lanes(parts, begin, bytes, [&](int64_t offset, int64_t count) {
    copy_bytes(next, plus(call.target, offset), count);
    next += count;
  });
}

// --- Sizes

std::vector<int64_t> Levels::lengths(const HostParts& parts, int64_t begin, int64_t length) const {
  std::vector<int64_t> lengths;
  for (int host = 0; host < topology_.num_hosts(); ++host)
    lengths.push_back(std::clamp<int64_t>(parts.total(host) - begin, 0, length));
  return lengths;
}

std::vector<int64_t> Levels::shares(const std::vector<int64_t>& lengths, int lane) const {
  std::vector<int64_t> shares;
  for (const int64_t length : lengths) shares.push_back(topology_.share(length, lane));
  return shares;
}

std::vector<int64_t> Levels::place_shares(const std::vector<int64_t>& lengths) const {
  std::vector<int64_t> all(topology_.neighbours().size());
  for (const int64_t length : lengths) {
    const auto shares = topology_.place_shares(length);
    std::transform(all.begin(), all.end(), shares.begin(), all.begin(), std::plus<>());
  }
  return all;
}

}  // namespace cohort::hierarchical
