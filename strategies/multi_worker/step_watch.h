#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/collective/communicator.h"

namespace cohort {

// What the replicas of this worker have done in their last step, as their communicators see it.
// Thread-safe.
class StepWatch : public std::enable_shared_from_this<StepWatch> {
 public:
  // `sees_all`: no device does collectives by itself.
  StepWatch(int replicas, bool sees_all)
      : replicas_(static_cast<size_t>(replicas)), sees_all_(sees_all) {}

  // The communicator of a replica, watched.
  std::unique_ptr<Communicator> watch(int replica, std::unique_ptr<Communicator> communicator);

  // Of a replica that has done its part of the step, on its thread. kInvalidArgument, here or in
  // the collective that another replica asks for, where that one would wait for it for ever.
  void end_step(int replica);

  // Forgets the step before. Not while replicas run, as is what follows.
  void begin_step();
  // Whether some replica may have got the result of a collective, and done something with it.
  bool has_combined() const;
  // How long replicas have waited in collectives: the one that did so least. At any time.
  std::chrono::nanoseconds in_collectives() const;
  // The same, where what is between two Barriers on end counts as waiting too: some write for all
  // there.
  std::chrono::nanoseconds waited() const;

  // Ends all that is watched, from now on too: also what is not yet in the hands of who would end
  // it. From any thread.
  void abort(const Error& error);

 private:
  friend class WatchedCommunicator;
  struct Replica {
    std::atomic<bool> has_combined = false;
    // In nanoseconds.
    std::atomic<int64_t> in_collectives = 0, between_barriers = 0;
    std::atomic<int64_t> collectives = 0;  // that it has asked for
    std::atomic<bool> has_ended = false;
    // When a Barrier was over, if that was the last collective; of the replica's thread.
    std::optional<std::chrono::steady_clock::time_point> barrier_ended;
  };

  void begin_collective(Replica& replica);
  void add(Communicator* communicator);
  void remove(Communicator* communicator);

  std::vector<Replica> replicas_;
  const bool sees_all_;
  std::mutex mutex_;  // guards what follows
  std::set<Communicator*> watched_;
  std::optional<Error> ended_;
};

}  // namespace cohort
