#pragma once

#include <memory>
#include <vector>

#include "core/collective/call.h"
#include "core/tensor/tensor.h"
#include "strategies/collective/tcp/exchange.h"

// How the kinds of collectives use an exchange.
namespace cohort::tcp {

// Nothing but the rounds.
class RoundsOnly final : public Operation {
 public:
  void begin(Exchange&) override {}
  bool accept(Exchange&, int, const FrameHeader&, Destination&) override;
  void arrived(Exchange&, int, const FrameHeader&) override {}
  bool is_complete() const override { return true; }
  bool expects(int) const override { return false; }
};

// Every rank sends every other a part, straight from memory to memory. Parts may be empty.
class PartExchange final : public Operation {
 public:
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t bytes() const { return end - begin; }
  };
  // What goes to and comes from each rank; the own rank's are not used. With `check_sizes`, ranks
  // may disagree about the size of a part, which is then found out before anybody returns.
  PartExchange(Memory source, std::vector<Range> out, Memory target, std::vector<Range> in,
               bool check_sizes);

  void begin(Exchange& exchange) override;
  bool accept(Exchange& exchange, int peer, const FrameHeader& header,
              Destination& destination) override;
  void arrived(Exchange& exchange, int peer, const FrameHeader& header) override;
  bool is_complete() const override;
  bool expects(int peer) const override;
  bool may_join() const override { return unchecked_ == 0; }

 private:
  const Memory source_, target_;
  const std::vector<Range> out_, in_;
  const bool check_sizes_;
  int unchecked_ = 0;
  std::vector<int64_t> got_;
  std::vector<bool> checked_;
  int64_t missing_ = 0;
};

// From the root through all ranks, each of which passes on what it has.
class BroadcastChain final : public Operation {
 public:
  BroadcastChain(Memory memory, int previous, int next)
      : memory_(std::move(memory)), previous_(previous), next_(next) {}

  void begin(Exchange& exchange) override;
  bool accept(Exchange& exchange, int peer, const FrameHeader& header,
              Destination& destination) override;
  void arrived(Exchange& exchange, int peer, const FrameHeader& header) override;
  bool is_complete() const override { return got_ == memory_.bytes(); }
  bool expects(int peer) const override { return peer == previous_ && !is_complete(); }

 private:
  const Memory memory_;
  const int previous_, next_;  // -1 at the ends
  int64_t got_ = 0;
};

// Every rank combines one slice of the value out of what all ranks have of it, in rank order, chunk
// by chunk, and sends the result to those who want it. Of the traffic that is the least possible,
// half types are rounded once, and the bits are those of a plain loop; a ring has the same traffic,
// but would round, and add, at every rank.
class SliceReduction final : public Operation {
 public:
  struct Plan {
    ReduceOp op;
    DType dtype;
    Memory sources;                   // all of this rank's elements
    Memory results;                   // memory for its slice of the result
    Memory targets;                   // all of the result, null where it is not wanted
    std::vector<int64_t> boundaries;  // in elements; of the slice of rank r: r and r + 1
    int wanted_by = kEverybody;       // a rank, or one of these
  };
  static constexpr int kEverybody = -1, kNobodyElse = -2;

  // `staging` is kept for the next one.
  SliceReduction(Plan plan, int rank, std::shared_ptr<Buffer>& staging);

  void begin(Exchange& exchange) override;
  bool accept(Exchange& exchange, int peer, const FrameHeader& header,
              Destination& destination) override;
  void arrived(Exchange& exchange, int peer, const FrameHeader& header) override;
  bool is_complete() const override { return reduced_ == own_bytes() && missing_results_ == 0; }
  bool expects(int peer) const override;

 private:
  int size() const { return static_cast<int>(plan_.boundaries.size()) - 1; }
  // In bytes.
  int64_t boundary(int rank) const;
  int64_t slice(int rank) const { return boundary(rank + 1) - boundary(rank); }
  int64_t own_bytes() const { return slice(rank_); }
  bool wanted(int rank) const;
  char* slot(int64_t chunk, int peer) const;
  int64_t chunk_of(int rank) const;
  bool has_all_up_to(int64_t bytes) const;
  void reduce_next(Exchange& exchange);

  const Plan plan_;
  const int rank_;
  const int64_t chunk_;
  char* staging_;
  std::vector<Memory> slots_;         // by slot and peer
  std::vector<int64_t> contributed_;  // bytes of each rank to the own slice
  std::vector<int64_t> results_;      // bytes of each rank's slice that have come
  int64_t reduced_ = 0;               // bytes of the own slice
  int64_t missing_results_ = 0;
  std::vector<iovec> source_pieces_, result_pieces_;
  std::vector<const void*> sources_;
};

}  // namespace cohort::tcp
