#pragma once

#include <vector>

#include "core/collective/call.h"
#include "strategies/collective/host/host_rank.h"

namespace cohort {

// The collectives that copy, of one rank: every rank has a piece for every other, which may be the
// same for all or nothing. A call is `set`, `announce`, the ranks' meeting, `choose` and `work`.
class HostExchange {
 public:
  explicit HostExchange(const HostRank& host);

  void set(const BroadcastCall& call);
  void set(const AllGatherCall& call);
  void set(const GatherCall& call);
  void set(const ScatterCall& call);
  void set(const AllToAllCall& call);

  // Tells the others where this rank's pieces are.
  void announce(Post& post);
  // Of an all-to-all, after the meeting: takes what others send from their posts, which must agree
  // with what their receivers expect: otherwise the ranks that do not (sender, receiver).
  std::optional<std::pair<int, int>> take_sizes(uint64_t turn);
  // `reachable`: whether all that ranks announced is mapped.
  HostPath choose(uint64_t turn, bool reachable) const;
  template <typename W>
  void work(HostPath path, uint64_t turn, const W& waiting) {
    copy_own();
    if (path == HostPath::kInline) return copy_inline(turn);
    if (path == HostPath::kDirect) {
      copy_direct(turn);
      return host_.meeting.part(waiting);
    }
    const int64_t windows = num_windows();
    if (windows > 0) stage(0);
    for (int64_t w = 0; w < windows; ++w) {
      host_.meeting.part(waiting);
      if (w + 1 < windows) stage(w + 1);
      copy_staged(w);
    }
  }

 private:
  // A piece from or to one rank.
  struct Piece {
    int64_t bytes = 0;
    int64_t source_offset = 0;  // in the sender's source
    int64_t target_offset = 0;  // in this rank's target, of a piece that comes
  };

  void clear(const void* source, void* target);
  bool is_all_to_all() const { return !receive_bytes_.empty() || !send_bytes_.empty(); }
  void copy_own();
  void copy_inline(uint64_t turn);
  void copy_direct(uint64_t turn);
  int64_t window_bytes() const;
  int64_t num_windows() const;
  void stage(int64_t window);
  void copy_staged(int64_t window);
  // Where in the sender's staging area the piece for `receiver` begins.
  int64_t place(int receiver) const { return same_for_all_ ? 0 : receiver * window_bytes(); }

  const HostRank host_;
  const char* source_ = nullptr;
  char* target_ = nullptr;
  bool same_for_all_ = false;
  int64_t source_bytes_ = 0;     // of all that others may get from this rank
  int64_t largest_source_ = 0;   // of any rank
  int64_t largest_piece_ = 0;    // of any rank
  std::vector<Piece> out_, in_;  // by rank; that of this rank is the same in both
  std::span<const int64_t> send_bytes_, receive_bytes_;  // of an all-to-all
};

}  // namespace cohort
