#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace cohort::hierarchical {

// On which hosts the ranks of a group are, and which of them carry what between hosts: that is
// divided among as many lanes as the largest host has ranks. Every lane has a carrier on every
// host; every rank carries at least one, and several of them are neighbours.
class Topology {
 public:
  // hosts[r] is the host of rank r, in any numbers.
  Topology(const std::vector<int>& hosts, int rank);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(host_of_.size()); }
  int num_hosts() const { return static_cast<int>(ranks_.size()); }
  // Ranks in their order; hosts are numbered by their first ranks.
  const std::vector<int>& ranks(int host) const { return ranks_[static_cast<size_t>(host)]; }
  const std::vector<int>& neighbours() const { return ranks(host_); }  // of this rank, with it
  int host_of(int rank) const { return host_of_[static_cast<size_t>(rank)]; }
  int place_of(int rank) const { return place_of_[static_cast<size_t>(rank)]; }  // on its host
  int host() const { return host_; }
  int place() const { return place_of(rank_); }

  int num_lanes() const { return num_lanes_; }
  // The rank that carries a lane.
  int carrier(int host, int lane) const;
  // The lanes that a rank of this host carries: those from first_lane(place) to the next one's
  // first.
  int first_lane(int place) const;

  // Where the share of a lane in something of `total` elements begins, and that of the next one.
  int64_t begin(int64_t total, int lane) const;
  int64_t share(int64_t total, int lane) const {
    return begin(total, lane + 1) - begin(total, lane);
  }
  // What the lanes of each rank of this host have together, in units of so many bytes.
  std::vector<int64_t> place_shares(int64_t total, int64_t unit = 1) const;

 private:
  const int rank_;
  std::vector<int> host_of_, place_of_;  // by rank
  std::vector<std::vector<int>> ranks_;  // by host
  int host_ = 0, num_lanes_ = 0;
};

// Parts of all ranks, which lie one behind the other in rank order; those of the ranks of one host
// are counted as if they were neighbours.
class HostParts {
 public:
  HostParts(const Topology& topology, std::span<const int64_t> sizes);

  int64_t total(int host) const { return totals_[static_cast<size_t>(host)]; }
  int64_t longest() const;  // of the totals
  // Where the part of a rank begins among those of its host.
  int64_t begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  int64_t size(int rank) const { return sizes_[static_cast<size_t>(rank)]; }
  // Calls f(where it lies among those of all ranks, count) for the pieces of [begin, end) of a
  // host.
  template <typename F>
  void for_each(int host, int64_t begin, int64_t end, const F& f) const {
    for (const int r : topology_.ranks(host)) {
      const int64_t from = std::max(begin, this->begin(r)),
                    to = std::min(end, this->begin(r) + size(r));
      if (from < to) f(offsets_[static_cast<size_t>(r)] + from - this->begin(r), to - from);
    }
  }

 private:
  const Topology& topology_;
  const std::span<const int64_t> sizes_;
  std::vector<int64_t> totals_, begins_, offsets_;
};

}  // namespace cohort::hierarchical
