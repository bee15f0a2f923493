#include "strategies/collective/hierarchical/topology.h"

#include "core/base/part.h"

namespace cohort::hierarchical {

Topology::Topology(const std::vector<int>& hosts, int rank)
    : rank_(rank), host_of_(hosts.size()), place_of_(hosts.size()) {
  std::vector<int> seen;  // in the order of their first ranks
  for (size_t r = 0; r < hosts.size(); ++r) {
    const auto known = std::find(seen.begin(), seen.end(), hosts[r]);
    const auto host = static_cast<size_t>(known - seen.begin());
    if (known == seen.end()) {
      seen.push_back(hosts[r]);
      ranks_.emplace_back();
    }
    host_of_[r] = static_cast<int>(host);
    place_of_[r] = static_cast<int>(ranks_[host].size());
    ranks_[host].push_back(static_cast<int>(r));
  }
  host_ = host_of(rank);
  for (const auto& ranks : ranks_)
    num_lanes_ = std::max(num_lanes_, static_cast<int>(ranks.size()));
}

int Topology::carrier(int host, int lane) const {
  const auto& all = ranks(host);
  return all[static_cast<size_t>(lane) * all.size() / static_cast<size_t>(num_lanes_)];
}

int Topology::first_lane(int place) const {
  const auto here = static_cast<int>(neighbours().size());
  return (place * num_lanes_ + here - 1) / here;
}

int64_t Topology::begin(int64_t total, int lane) const {
  return part_of(total, lane, num_lanes_).begin;
}

std::vector<int64_t> Topology::place_shares(int64_t total, int64_t unit) const {
  std::vector<int64_t> shares;
  for (int p = 0; p < static_cast<int>(neighbours().size()); ++p)
    shares.push_back((begin(total, first_lane(p + 1)) - begin(total, first_lane(p))) * unit);
  return shares;
}

HostParts::HostParts(const Topology& topology, std::span<const int64_t> sizes)
    : topology_(topology), sizes_(sizes), totals_(static_cast<size_t>(topology.num_hosts())) {
  int64_t offset = 0;
  for (int r = 0; r < topology.size(); ++r) {
    int64_t& total = totals_[static_cast<size_t>(topology.host_of(r))];
    begins_.push_back(total);
    offsets_.push_back(offset);
    total += size(r);
    offset += size(r);
  }
}

int64_t HostParts::longest() const { return *std::max_element(totals_.begin(), totals_.end()); }

}  // namespace cohort::hierarchical
