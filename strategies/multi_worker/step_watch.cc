#include "strategies/multi_worker/step_watch.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/collective/forwarding_communicator.h"

namespace cohort {
namespace {

Error mismatch(int64_t fewer, int64_t more) {
  return Error(Code::kInvalidArgument,
               str("the replicas of a step must make the same collectives, but one has ended it "
                   "after ",
                   fewer, " of them, and another one has asked for ", more));
}

// Of the replica for which it is shortest.
template <typename Replicas, typename Time>
std::chrono::nanoseconds shortest(const Replicas& replicas, const Time& time) {
  int64_t least = INT64_MAX;
  for (const auto& replica : replicas) least = std::min(least, time(replica));
  return std::chrono::nanoseconds(least);
}

}  // namespace

class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  WatchedCommunicator(std::unique_ptr<Communicator> inner, std::shared_ptr<StepWatch> watch,
                      int replica)
      : ForwardingCommunicator(std::move(inner)),
        watch_(std::move(watch)),
        replica_(watch_->replicas_[static_cast<size_t>(replica)]) {
    watch_->add(this);
  }
  ~WatchedCommunicator() override { watch_->remove(this); }

  void run(const Call& call) override {
    watch_->begin_collective(replica_);
    const bool is_barrier = std::holds_alternative<BarrierCall>(call);
    const auto last_barrier = std::exchange(replica_.barrier_ended, std::nullopt);
    if (is_barrier && last_barrier) add(replica_.between_barriers, Clock::now() - *last_barrier);
    timed([&] { inner().run(call); });
    if (is_barrier) replica_.barrier_ended = Clock::now();
  }
  int64_t start(const Call& call) override {
    watch_->begin_collective(replica_);
    replica_.barrier_ended.reset();
    return inner().start(call);
  }
  Received wait(int64_t operation) override {
    Received received;
    timed([&] { received = inner().wait(operation); });
    return received;
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <typename Work>
  void timed(const Work& work) {
    const auto begin = Clock::now();
    work();
    add(replica_.in_collectives, Clock::now() - begin);
    replica_.has_combined = true;
  }
  static void add(std::atomic<int64_t>& sum, std::chrono::nanoseconds time) { sum += time.count(); }

  const std::shared_ptr<StepWatch> watch_;
  StepWatch::Replica& replica_;
};

std::unique_ptr<Communicator> StepWatch::watch(int replica,
                                               std::unique_ptr<Communicator> communicator) {
  return std::make_unique<WatchedCommunicator>(std::move(communicator), shared_from_this(),
                                               replica);
}

void StepWatch::add(Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  watched_.insert(communicator);
  if (ended_) communicator->abort(*ended_);
}

void StepWatch::remove(Communicator* communicator) {
  const std::lock_guard lock(mutex_);
  watched_.erase(communicator);
}

void StepWatch::abort(const Error& error) {
  const std::lock_guard lock(mutex_);
  ended_ = error;
  for (Communicator* communicator : watched_) communicator->abort(error);
}

// Whoever comes last, of one that ends and one that asks for more, sees what the other has done.
void StepWatch::begin_collective(Replica& replica) {
  const int64_t own = ++replica.collectives;
  if (replica.has_ended) return;  // between two steps
  for (const Replica& other : replicas_)
    if (other.has_ended && other.collectives < own) throw mismatch(other.collectives, own);
}

void StepWatch::end_step(int replica) {
  Replica& own = replicas_[static_cast<size_t>(replica)];
  own.has_ended = true;
  for (const Replica& other : replicas_)
    if (other.collectives > own.collectives) throw mismatch(own.collectives, other.collectives);
}

void StepWatch::begin_step() {
  for (Replica& replica : replicas_) {
    replica.has_combined = false;
    replica.in_collectives = 0;
    replica.between_barriers = 0;
    replica.collectives = 0;
    replica.has_ended = false;
    replica.barrier_ended.reset();
  }
}

bool StepWatch::has_combined() const {
  return !sees_all_ || std::any_of(replicas_.begin(), replicas_.end(), [](const Replica& replica) {
    return replica.has_combined.load();
  });
}

std::chrono::nanoseconds StepWatch::in_collectives() const {
  return shortest(replicas_, [](const Replica& r) { return r.in_collectives.load(); });
}

std::chrono::nanoseconds StepWatch::waited() const {
  return shortest(replicas_, [](const Replica& r) {
    return r.in_collectives.load() + r.between_barriers.load();
  });
}

}  // namespace cohort
