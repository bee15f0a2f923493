#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "core/collective/bucket.h"
#include "core/collective/communicator.h"
#include "strategies/collective/hierarchical/partial_result.h"
#include "strategies/collective/hierarchical/topology.h"
#include "strategies/collective/host/shared_memory_communicator.h"

namespace cohort::hierarchical {

// The collectives of one rank that go over shared memory within each host and over the lanes
// between hosts, so that all data crosses between two hosts once. All ranks have agreed on the call
// before. Large ones are done in windows, for which there is memory that others can use in place;
// of a reduction to ranks, one is on the lanes while the host combines the next.
class Levels {
 public:
  // `lanes` are those that this rank carries; their ranks are the hosts.
  Levels(Topology topology, std::unique_ptr<HostCommunicator> host,
         std::vector<std::unique_ptr<Communicator>> lanes);

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

  // Calls on lanes that have been started; none uses any memory any more when this has gone, which
  // takes until they have ended or been aborted.
  class LaneCalls {
   public:
    LaneCalls() = default;
    ~LaneCalls();
    LaneCalls(const LaneCalls&) = delete;
    LaneCalls& operator=(const LaneCalls&) = delete;

    void start(Communicator& lane, const Call& call);
    void wait();

   private:
    void wait_for_one();
    std::vector<std::pair<Communicator*, int64_t>> started_;
  };
  // Part of a reduction, from its way through the host until it is told to its ranks.
  struct Window {
    ElementRange range{};
    char* sums = nullptr;
    std::vector<Segment> segments;  // one for each lane
    LaneCalls calls;
  };

  void reduce(const Bucket& bucket, ReduceOp op, int root);
  void start_window(Window& window, const Bucket& bucket, const PartialResult& partial, int root,
                    Scratch& sums);
  void finish_window(Window& window, const Bucket& bucket, const PartialResult& partial, int root);
  void scatter_window(const ReduceScatterCall& call, const HostParts& parts,
                      const PartialResult& partial, int64_t begin, int64_t length);
  void gather_window(const AllGatherCall& call, const HostParts& parts, int64_t begin,
                     int64_t length);
  // Calls f(where it lies among those of all ranks, count) for the pieces of the window at `begin`,
  // which has `lengths` of the hosts' parts: by lanes, and within each by hosts.
  template <typename F>
  void for_each_by_lanes(const HostParts& parts, int64_t begin, const std::vector<int64_t>& lengths,
                         const F& f) const;
  // Elements as partial results, and those as the elements of the result.
  const void* widened(const PartialResult& partial, const void* elements, int64_t count);
  const void* finished(const PartialResult& partial, char* elements, int64_t count);
  // How much of [begin, begin + length) each host has.
  std::vector<int64_t> lengths(const HostParts& parts, int64_t begin, int64_t length) const;
  // The share of a lane in each of so much.
  std::vector<int64_t> shares(const std::vector<int64_t>& lengths, int lane) const;
  // What the lanes of each rank of this host have of all of that together.
  std::vector<int64_t> place_shares(const std::vector<int64_t>& lengths) const;

  // Does call_of(lane), if that is a call, on all lanes of this rank at once.
  template <typename F>
  void on_lanes(const F& call_of);
  // Starts to; or does it, where nothing is to go on meanwhile and there is but one lane.
  template <typename F>
  void start_on_lanes(LaneCalls& calls, bool go_on, const F& call_of);
  // When something fails in `work`, so do all calls on lanes and in the host.
  template <typename F>
  void guarded(const F& work);

  const Topology topology_;
  const int first_, last_;  // own lanes: [first_, last_)
  // What lanes are still writing to when an error has come goes after them.
  Scratch packed_, wide_, sums_, next_sums_, halves_, results_;
  const std::unique_ptr<HostCommunicator> host_;
  const std::vector<std::unique_ptr<Communicator>> lanes_;
};

}  // namespace cohort::hierarchical
