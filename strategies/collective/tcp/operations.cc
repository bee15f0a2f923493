#include "strategies/collective/tcp/operations.h"

#include <algorithm>
#include <limits>

#include "core/collective/reduction.h"

namespace cohort::tcp {
namespace {

// Small enough for the second-level cache together with what it is combined with.
constexpr int64_t kReductionChunk = 256 * 1024;
constexpr int64_t kSmallestChunk = 32 * 1024;
constexpr int64_t kPartChunk = 512 * 1024;
// Chunks of one slice that are under way at once.
constexpr int64_t kSlots = 4;

size_t at(int rank) { return static_cast<size_t>(rank); }

// Whether a frame is the next one of `bytes` of which `got` have come. One that brings nothing
// could come for ever.
bool continues(const FrameHeader& header, int64_t got, int64_t bytes) {
  return header.index == static_cast<uint64_t>(got) && header.length > 0 &&
         header.length <= bytes - got;
}

}  // namespace

bool RoundsOnly::accept(Exchange& exchange, int peer, const FrameHeader&, Destination&) {
  exchange.refuse_frame(peer);
}

// --- PartExchange

PartExchange::PartExchange(Memory source, std::vector<Range> out, Memory target,
                           std::vector<Range> in, bool check_sizes)
    : source_(std::move(source)),
      target_(std::move(target)),
      out_(std::move(out)),
      in_(std::move(in)),
      check_sizes_(check_sizes),
      got_(out_.size()),
      checked_(out_.size()) {}

void PartExchange::begin(Exchange& exchange) {
  if (check_sizes_) unchecked_ = exchange.size() - 1;
  for (int step = 1; step < exchange.size(); ++step) {
    const int peer = (exchange.rank() + step) % exchange.size();
    missing_ += in_[at(peer)].bytes();
    const Range& out = out_[at(peer)];
    if (out.bytes() == 0 && !check_sizes_) continue;
    Stream& stream = exchange.stream(peer, Exchange::kParts);
    stream = {.header = exchange.header(FrameKind::kPart),
              .memory = &source_,
              .next = out.begin,
              .end = out.end,
              .ready = out.end,
              .chunk = kPartChunk,
              .empty_frame = out.bytes() == 0};
    stream.header.total = static_cast<uint64_t>(out.bytes());
  }
}

bool PartExchange::accept(Exchange& exchange, int peer, const FrameHeader& header,
                          Destination& destination) {
  const Range& in = in_[at(peer)];
  if (header.kind != FrameKind::kPart) exchange.refuse_frame(peer);
  if (header.total != static_cast<uint64_t>(in.bytes())) {
    if (!check_sizes_) exchange.refuse_frame(peer);
    exchange.report_sizes(peer, exchange.rank());
    return false;
  }
  const bool tells_size = check_sizes_ && !checked_[at(peer)];
  const bool is_empty_part = tells_size && in.bytes() == 0 && header.length == 0;
  if (!is_empty_part && !continues(header, got_[at(peer)], in.bytes())) exchange.refuse_frame(peer);
  destination = {&target_, in.begin + got_[at(peer)]};
  if (tells_size) {
    checked_[at(peer)] = true;
    --unchecked_;
  }
  return true;
}

void PartExchange::arrived(Exchange&, int peer, const FrameHeader& header) {
  got_[at(peer)] += header.length;
  missing_ -= header.length;
}

bool PartExchange::is_complete() const { return missing_ == 0 && unchecked_ == 0; }

bool PartExchange::expects(int peer) const {
  return got_[at(peer)] < in_[at(peer)].bytes() || (check_sizes_ && !checked_[at(peer)]);
}

// --- BroadcastChain

void BroadcastChain::begin(Exchange& exchange) {
  if (previous_ < 0) got_ = memory_.bytes();
  if (next_ < 0 || memory_.bytes() == 0) return;
  exchange.stream(next_, Exchange::kParts) = {.header = exchange.header(FrameKind::kPart),
                                              .memory = &memory_,
                                              .next = 0,
                                              .end = memory_.bytes(),
                                              .ready = got_,
                                              .chunk = kReductionChunk};
}

bool BroadcastChain::accept(Exchange& exchange, int peer, const FrameHeader& header,
                            Destination& destination) {
  if (peer != previous_ || header.kind != FrameKind::kPart ||
      !continues(header, got_, memory_.bytes()))
    exchange.refuse_frame(peer);
  destination = {&memory_, got_};
  return true;
}

void BroadcastChain::arrived(Exchange& exchange, int /*peer*/, const FrameHeader& header) {
  got_ += header.length;
  if (next_ >= 0) exchange.stream(next_, Exchange::kParts).ready = got_;
}

// --- SliceReduction

SliceReduction::SliceReduction(Plan plan, int rank, std::shared_ptr<Buffer>& staging)
    : plan_(std::move(plan)),
      rank_(rank),
      chunk_(chunk_of(rank)),
      contributed_(at(size())),
      results_(at(size())) {
  const int64_t peers = std::max(1, size() - 1);
  const auto bytes = static_cast<size_t>(chunk_ * peers * kSlots);
  if (staging == nullptr || staging->bytes < bytes) staging = allocate_host_buffer(bytes);
  staging_ = static_cast<char*>(staging->data);
  for (int64_t s = 0; s < kSlots; ++s)
    for (int p = 0; p < size(); ++p)
      slots_.push_back(p == rank_ ? Memory() : Memory(slot(s, p), chunk_));
  for (int p = 0; p < size(); ++p)
    if (p != rank_ && wanted(rank_)) missing_results_ += slice(p);
  if (plan_.wanted_by == kNobodyElse) missing_results_ = 0;
}

int64_t SliceReduction::boundary(int rank) const {
  return plan_.boundaries[at(rank)] * static_cast<int64_t>(dtype_size(plan_.dtype));
}

// Of a rank's slice.
int64_t SliceReduction::chunk_of(int rank) const {
  const int64_t peers = std::max(1, size() - 1);
  const int64_t chunk =
      std::max(kSmallestChunk, kReductionChunk / peers / kSmallestChunk * kSmallestChunk);
  return std::min(chunk, (slice(rank) + 63) / 64 * 64);
}

bool SliceReduction::wanted(int rank) const {
  return plan_.wanted_by == kEverybody || plan_.wanted_by == rank;
}

char* SliceReduction::slot(int64_t chunk, int peer) const {
  const int64_t place = peer < rank_ ? peer : peer - 1;
  return staging_ + (chunk % kSlots * std::max(1, size() - 1) + place) * chunk_;
}

void SliceReduction::begin(Exchange& exchange) {
  // Everybody starts with another one.
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank_ + step) % size();
    if (slice(peer) > 0)
      exchange.stream(peer, Exchange::kParts) = {
          .header = exchange.header(FrameKind::kContribution),
          .memory = &plan_.sources,
          .next = boundary(peer),
          .end = boundary(peer + 1),
          .ready = boundary(peer + 1),
          .chunk = chunk_of(peer)};
    if (wanted(peer) && own_bytes() > 0)
      exchange.stream(peer, Exchange::kResults) = {.header = exchange.header(FrameKind::kResult),
                                                   .memory = &plan_.results,
                                                   .next = 0,
                                                   .end = own_bytes(),
                                                   .ready = 0,
                                                   .chunk = chunk_};
  }
}

bool SliceReduction::accept(Exchange& exchange, int peer, const FrameHeader& header,
                            Destination& destination) {
  if (header.kind == FrameKind::kContribution) {
    const int64_t got = contributed_[at(peer)];
    if (own_bytes() == 0 || !continues(header, got, own_bytes()) ||
        header.length != static_cast<uint64_t>(std::min(chunk_, own_bytes() - got)))
      exchange.refuse_frame(peer);
    if (got >= reduced_ + kSlots * chunk_) return false;
    destination = {&slots_[static_cast<size_t>(got / chunk_ % kSlots * size() + peer)], 0};
    return true;
  }
  const int64_t got = results_[at(peer)];
  if (header.kind != FrameKind::kResult || !wanted(rank_) || !continues(header, got, slice(peer)))
    exchange.refuse_frame(peer);
  destination = {&plan_.targets, boundary(peer) + got};
  return true;
}

void SliceReduction::arrived(Exchange& exchange, int peer, const FrameHeader& header) {
  if (header.kind == FrameKind::kContribution) {
    contributed_[at(peer)] += header.length;
    while (reduced_ < own_bytes() && has_all_up_to(std::min(reduced_ + chunk_, own_bytes())))
      reduce_next(exchange);
  } else {
    results_[at(peer)] += header.length;
    missing_results_ -= header.length;
  }
}

bool SliceReduction::has_all_up_to(int64_t bytes) const {
  for (int p = 0; p < size(); ++p)
    if (p != rank_ && contributed_[at(p)] < bytes) return false;
  return true;
}

bool SliceReduction::expects(int peer) const {
  return contributed_[at(peer)] < own_bytes() ||
         (wanted(rank_) && results_[at(peer)] < slice(peer));
}

void SliceReduction::reduce_next(Exchange& exchange) {
  const int64_t begin = reduced_, end = std::min(begin + chunk_, own_bytes());
  const auto element = static_cast<int64_t>(dtype_size(plan_.dtype));
  constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  source_pieces_.clear();
  result_pieces_.clear();
  plan_.sources.find(boundary(rank_) + begin, boundary(rank_) + end, nullptr, kNoLimit,
                     source_pieces_);
  plan_.results.find(begin, end, nullptr, kNoLimit, result_pieces_);
  int64_t offset = 0;
  for (size_t i = 0; i < source_pieces_.size(); ++i) {
    const auto bytes = static_cast<int64_t>(source_pieces_[i].iov_len);
    sources_.clear();
    for (int p = 0; p < size(); ++p)
      sources_.push_back(p == rank_ ? source_pieces_[i].iov_base
                                    : slot(begin / chunk_, p) + offset);
    reduce_elements(plan_.op, plan_.dtype, sources_, {&result_pieces_[i].iov_base, 1}, 0,
                    bytes / element);
    offset += bytes;
  }
  reduced_ = end;
  for (int p = 0; p < size(); ++p)
    if (p != rank_ && wanted(p)) exchange.stream(p, Exchange::kResults).ready = reduced_;
  exchange.unpark();
}

}  // namespace cohort::tcp
