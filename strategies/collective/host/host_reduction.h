#pragma once

#include <vector>

#include "core/base/error.h"
#include "core/base/part.h"
#include "core/collective/call.h"
#include "strategies/collective/host/host_rank.h"

namespace cohort {

// The collectives that combine, of one rank: each rank reduces a slice out of everybody's memory
// (or what they staged of it), in rank order, so that the bits are those of every other backend;
// and, of a long slice in place, blocks that a slower rank has not come to. A call is `set`,
// `announce`, the ranks' meeting, `choose` and `work`.
class HostReduction {
 public:
  explicit HostReduction(const HostRank& host);

  void set(const AllReduceCall& call);
  void set(const ReduceCall& call);
  void set(const ReduceScatterCall& call);

  // Tells the others where this rank's elements are.
  void announce(Post& post);
  // `reachable`: whether all that ranks announced is mapped.
  HostPath choose(uint64_t turn, bool reachable) const;
  template <typename W>
  void work(HostPath path, uint64_t turn, const W& waiting) {
    if (path == HostPath::kInline) return reduce_inline(turn);
    if (path == HostPath::kDirect) {
      try {
        reduce_direct(turn);
        return host_.meeting.part(waiting);
      } catch (const Error& error) {
        keep_targets(error);
        throw;
      }
    }
    // Three windows are in work at a time, each in another stage, with a meeting after each step.
    const int64_t windows = num_windows(), steps = windows == 0 ? 0 : windows + kStages - 1;
    for (int64_t step = 0; step < steps; ++step) {
      if (step < windows) stage(step);
      if (step >= 1 && step - 1 < windows) reduce_staged(step - 1);
      if (step >= 2) copy_results(step - 2);
      if (step + 1 < steps) host_.meeting.part(waiting);
    }
  }

 private:
  static constexpr int64_t kStages = 3;

  // Neighbouring elements of this rank's memory; `begin` counts from the first of all.
  struct Run {
    int64_t begin, count;
    const char* source;
    char* target;  // may be null
  };
  // The elements that one rank reduces, of one window, and where they lie in staging areas.
  struct Slice {
    int64_t begin, end;
    int64_t place;
  };

  void clear(DType dtype, ReduceOp op);
  void add_run(const void* source, void* target, int64_t count);
  int64_t bytes(int64_t elements) const { return elements * element_bytes_; }
  // Calls f(run, offset in the run, count) for all that this rank has of some elements.
  template <typename F>
  void for_each_piece(int64_t begin, int64_t end, F&& f) const;

  void reduce_inline(uint64_t turn);
  void reduce_direct(uint64_t turn);
  // Once a call has failed with `error`: whoever is late in it no longer writes into this rank's
  // memory, which may soon be of use again. Where that cannot be, an error that says so, too.
  void keep_targets(const Error& error) const;
  // Reduces blocks of the slice of `rank`, as long as it has any that nobody has taken.
  void reduce_blocks(uint64_t turn, int rank);
  void reduce_part(uint64_t turn, Part part);
  // To the element `begin`: on from where the cursors are, or from the very beginning.
  void move_cursors(uint64_t turn, int64_t begin);
  int64_t window_elements() const;
  int64_t num_windows() const;
  Slice slice(int64_t window, int rank) const;
  void stage(int64_t window);
  void reduce_staged(int64_t window);
  void copy_results(int64_t window);
  // Whether some rank copies the result from this one.
  bool has_readers() const;

  const HostRank host_;
  DType dtype_ = DType::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
  int64_t element_bytes_ = 4;
  int64_t total_ = 0;  // elements
  int root_ = -1;      // the only one that wants the result, or -1
  std::vector<Run> runs_;
  std::span<const int64_t> parts_;  // of a reduce-scatter
  int64_t own_part_ = 0, largest_part_ = 0;
  char* scattered_target_ = nullptr;
  // Warm memory for the walk over all ranks' runs.
  struct Cursor {
    int run;
    int64_t left;  // elements of the run
    const char* source;
    char* target;
  };
  void advance(Cursor& cursor, uint64_t turn, int rank, int64_t elements) const;
  std::vector<Cursor> cursors_;
  int64_t cursors_at_ = 0;
  std::vector<const void*> sources_;
  std::vector<void*> targets_;
};

}  // namespace cohort
