#include "strategies/collective/host/host_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/collective/copy_bytes.h"

namespace cohort {
namespace {

constexpr auto kInline = static_cast<int64_t>(Post::kInlineBytes);
// Pieces begin at multiples of this in staging areas.
constexpr int64_t kPlaceUnit = 64;
// More bytes than any memory has, few enough that as many as there are ranks can be added.
constexpr int64_t kAbsurd = int64_t{1} << 52;

int64_t sum(std::span<const int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}
int64_t largest(std::span<const int64_t> sizes) {
  return sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
}

}  // namespace

HostExchange::HostExchange(const HostRank& host)
    : host_(host), out_(static_cast<size_t>(host.size)), in_(static_cast<size_t>(host.size)) {}

void HostExchange::clear(const void* source, void* target) {
  source_ = static_cast<const char*>(source);
  target_ = static_cast<char*>(target);
  same_for_all_ = false;
  source_bytes_ = 0;
  std::fill(out_.begin(), out_.end(), Piece{});
  std::fill(in_.begin(), in_.end(), Piece{});
  send_bytes_ = receive_bytes_ = {};
}

void HostExchange::set(const BroadcastCall& call) {
  clear(call.source, call.target);
  same_for_all_ = true;
  in_[static_cast<size_t>(call.root)].bytes = call.bytes;
  largest_source_ = largest_piece_ = call.bytes;
  if (host_.rank != call.root) return;
  source_bytes_ = call.bytes;
  for (Piece& piece : out_) piece.bytes = call.bytes;
}

void HostExchange::set(const AllGatherCall& call) {
  clear(call.source, call.target);
  same_for_all_ = true;
  source_bytes_ = call.bytes[static_cast<size_t>(host_.rank)];
  largest_source_ = largest_piece_ = largest(call.bytes);
  int64_t offset = 0;
  for (size_t r = 0; r < in_.size(); ++r) {
    in_[r] = {call.bytes[r], 0, offset};
    out_[r].bytes = source_bytes_;
    offset += call.bytes[r];
  }
}

void HostExchange::set(const GatherCall& call) {
  clear(call.source, call.target);
  const auto own = static_cast<size_t>(host_.rank), root = static_cast<size_t>(call.root);
  largest_source_ = largest_piece_ = largest(call.bytes);
  same_for_all_ = true;  // for the one that reads it
  if (own != root) source_bytes_ = call.bytes[own];
  for (Piece& piece : out_) piece.bytes = call.bytes[own];
  if (own != root) return;
  int64_t offset = 0;
  for (size_t r = 0; r < in_.size(); ++r) {
    in_[r] = {call.bytes[r], 0, offset};
    offset += call.bytes[r];
  }
}

void HostExchange::set(const ScatterCall& call) {
  clear(call.source, call.target);
  const auto own = static_cast<size_t>(host_.rank), root = static_cast<size_t>(call.root);
  largest_piece_ = largest(call.bytes);
  largest_source_ = sum(call.bytes);
  if (own == root) source_bytes_ = largest_source_;
  int64_t offset = 0;
  for (size_t r = 0; r < in_.size(); ++r) {
    if (own == root) out_[r] = {call.bytes[r], offset, 0};
    if (own == r) in_[root] = {call.bytes[r], offset, 0};
    offset += call.bytes[r];
  }
}

void HostExchange::set(const AllToAllCall& call) {
  clear(call.source, call.target);
  send_bytes_ = call.send_bytes;
  receive_bytes_ = call.receive_bytes;
  source_bytes_ = sum(call.send_bytes);
  int64_t sent = 0, received = 0;
  for (size_t r = 0; r < in_.size(); ++r) {
    out_[r] = {call.send_bytes[r], sent, 0};
    in_[r] = {call.receive_bytes[r], 0, received};
    sent += call.send_bytes[r];
    received += call.receive_bytes[r];
  }
  in_[static_cast<size_t>(host_.rank)].source_offset =
      out_[static_cast<size_t>(host_.rank)].source_offset;
}

void HostExchange::announce(Post& post) {
  post.direct = 1;
  if (is_all_to_all()) {
    std::copy(send_bytes_.begin(), send_bytes_.end(), post.send_bytes);
    std::copy(receive_bytes_.begin(), receive_bytes_.end(), post.receive_bytes);
  }
  if (source_bytes_ > 0 && source_bytes_ <= kInline)
    std::memcpy(post.payload, source_, static_cast<size_t>(source_bytes_));
  // Whether an all-to-all is small is known to its ranks only together.
  if (!is_all_to_all() && largest_source_ <= kInline) return;
  const auto source = host_.memory.locate(source_, source_bytes_, post);
  post.direct = source.has_value();
  if (source) post.first_run = {*source, {}, source_bytes_};
}

std::optional<std::pair<int, int>> HostExchange::take_sizes(uint64_t turn) {
  largest_piece_ = largest_source_ = 0;
  for (int s = 0; s < host_.size; ++s) {
    const Post& sender = host_.control.post(s, turn);
    int64_t offset = 0;
    for (int r = 0; r < host_.size; ++r) {
      const int64_t bytes = sender.send_bytes[r];
      if (bytes != host_.control.post(r, turn).receive_bytes[s]) return std::pair(s, r);
      if (bytes < 0 || bytes > kAbsurd) refuse_peer(host_, s);
      largest_piece_ = std::max(largest_piece_, bytes);
      if (r == host_.rank) in_[static_cast<size_t>(s)].source_offset = offset;
      offset += bytes;
    }
    largest_source_ = std::max(largest_source_, offset);
  }
  return std::nullopt;
}

HostPath HostExchange::choose(uint64_t turn, bool reachable) const {
  if (largest_source_ <= kInline) return HostPath::kInline;
  for (int r = 0; r < host_.size; ++r)
    reachable = reachable && host_.control.post(r, turn).direct != 0;
  return reachable ? HostPath::kDirect : HostPath::kStaged;
}

void HostExchange::copy_own() {
  const Piece& own = in_[static_cast<size_t>(host_.rank)];
  copy_bytes(source_ + own.source_offset, target_ + own.target_offset, own.bytes);
}

void HostExchange::copy_inline(uint64_t turn) {
  for (int r = 0; r < host_.size; ++r) {
    const Piece& piece = in_[static_cast<size_t>(r)];
    if (r == host_.rank || piece.bytes == 0) continue;
    if (piece.source_offset + piece.bytes > kInline) refuse_peer(host_, r);
    std::memcpy(target_ + piece.target_offset,
                host_.control.post(r, turn).payload + piece.source_offset,
                static_cast<size_t>(piece.bytes));
  }
}

void HostExchange::copy_direct(uint64_t turn) {
  for (int r = 0; r < host_.size; ++r) {
    const Piece& piece = in_[static_cast<size_t>(r)];
    if (r == host_.rank || piece.bytes == 0) continue;
    Location place = host_.control.post(r, turn).first_run.source;
    if (place.offset < 0 || place.offset > INT64_MAX - piece.source_offset) refuse_peer(host_, r);
    place.offset += piece.source_offset;
    const char* const source = host_.memory.resolve(r, place, piece.bytes);
    if (source == nullptr) refuse_peer(host_, r);
    copy_bytes(source, target_ + piece.target_offset, piece.bytes);
  }
}

int64_t HostExchange::window_bytes() const {
  constexpr auto kRoom = static_cast<int64_t>(ControlBlock::kStagingBytes);
  return same_for_all_ ? kRoom : kRoom / host_.size / kPlaceUnit * kPlaceUnit;
}

int64_t HostExchange::num_windows() const {
  return (largest_piece_ + window_bytes() - 1) / window_bytes();
}

void HostExchange::stage(int64_t window) {
  if (source_bytes_ == 0) return;
  const int64_t begin = window * window_bytes();
  char* const area = host_.control.staging(host_.rank, window);
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    const Piece& piece = out_[static_cast<size_t>(r)];
    const int64_t bytes = std::min(piece.bytes - begin, window_bytes());
    if (bytes > 0) copy_bytes(source_ + piece.source_offset + begin, area + place(r), bytes);
    if (same_for_all_) return;
  }
}

void HostExchange::copy_staged(int64_t window) {
  const int64_t begin = window * window_bytes();
  for (int r = 0; r < host_.size; ++r) {
    if (r == host_.rank) continue;
    const Piece& piece = in_[static_cast<size_t>(r)];
    const int64_t bytes = std::min(piece.bytes - begin, window_bytes());
    if (bytes > 0)
      copy_bytes(host_.control.staging(r, window) + place(host_.rank),
                 target_ + piece.target_offset + begin, bytes);
  }
}

}  // namespace cohort
