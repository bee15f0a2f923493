#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "core/collective/bucket.h"
#include "core/collective/communicator.h"
#include "strategies/collective/hierarchical/partial_result.h"
#include "strategies/collective/hierarchical/topology.h"
#include "strategies/collective/host/shared_memory_communicator.h"

namespace cohort::hierarchical {

// The collectives of one rank that go over shared memory within each host and over the lanes
// between hosts, so that all data crosses between two hosts once. All ranks have agreed on the call
// before. Large ones are done in windows, for which there is memory that others can use in place.
class Levels {
 public:
  using Limit = std::optional<std::chrono::milliseconds>;

  // `lanes` are those that this rank carries; their ranks are the hosts. The limits are of waits
  // for the ranks of this host, before and after these have been on the lanes.
  Levels(Topology topology, std::unique_ptr<HostCommunicator> host,
         std::vector<std::unique_ptr<Communicator>> lanes, Limit before_lanes, Limit after_lanes);

  const Topology& topology() const { return topology_; }
  HostCommunicator& host() { return *host_; }
  // From any thread.
  void abort(const Error& error);

  void run(const AllReduceCall& call);
  void run(const ReduceCall& call);
  void run(const ReduceScatterCall& call);
  void run(const BroadcastCall& call);
  void run(const AllGatherCall& call);

 private:
  // Memory that is kept from call to call.
  class Scratch {
   public:
    char* at_least(HostCommunicator& host, int64_t bytes);

   private:
    std::shared_ptr<Buffer> buffer_;
  };
  static constexpr int kEverybody = -1;

  void reduce(const Bucket& bucket, ReduceOp op, int root);
  void reduce_window(const Bucket& bucket, const PartialResult& partial, ElementRange range,
                     int root);
  void scatter_window(const ReduceScatterCall& call, const HostParts& parts,
                      const PartialResult& partial, int64_t begin, int64_t length);
  void gather_window(const AllGatherCall& call, const HostParts& parts, int64_t begin,
                     int64_t length);
  // Elements as partial results, and those as the elements of the result.
  const void* widened(const PartialResult& partial, const void* elements, int64_t count);
  const void* finished(const PartialResult& partial, char* elements, int64_t count);
  // How much of [begin, begin + length) each host has.
  std::vector<int64_t> lengths(const HostParts& parts, int64_t begin, int64_t length) const;
  // The share of a lane in each of so much.
  std::vector<int64_t> shares(const std::vector<int64_t>& lengths, int lane) const;
  // What the lanes of each rank of this host have of all of that together.
  std::vector<int64_t> place_shares(const std::vector<int64_t>& lengths) const;

  // Does call_of(lane), if that is a call, on all lanes of this rank at once. When one fails, so do
  // all, and none uses any memory any more.
  template <typename F>
  void on_lanes(const F& call_of);

  const Topology topology_;
  const int first_, last_;  // own lanes: [first_, last_)
  const Limit before_lanes_, after_lanes_;
  // What lanes are still writing to when an error has come goes after them.
  Scratch packed_, wide_, sums_, halves_, results_;
  const std::unique_ptr<HostCommunicator> host_;
  const std::vector<std::unique_ptr<Communicator>> lanes_;
};

}  // namespace cohort::hierarchical
