#include "strategies/cross_device/time_limit.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "core/base/comma_separated.h"
#include "core/base/start_threads.h"
#include "core/base/time_limits.h"
#include "core/collective/forwarding_communicator.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

// How many collectives each rank of a group has begun, which have the same numbers on all.
class Progress {
 public:
  explicit Progress(std::vector<std::string> names)
      : begun_(names.size()), names_(std::move(names)) {}

  // The number of the collective, from 1.
  uint64_t begin(int rank) { return ++begun_[static_cast<size_t>(rank)]; }
  std::string name(int rank) const {
    const std::lock_guard lock(mutex_);
    return names_[static_cast<size_t>(rank)];
  }
  // Who has not begun a collective; neighbours of one name once.
  std::vector<std::string> late(uint64_t collective) const {
    std::vector<std::string> late;
    for (size_t r = 0; r < begun_.size(); ++r) {
      if (begun_[r] >= collective) continue;
      std::string own = name(static_cast<int>(r));
      if (late.empty() || late.back() != own) late.push_back(std::move(own));
    }
    return late;
  }

  // That of the part with this color, in which `rank` has another number.
  std::shared_ptr<Progress> part(uint64_t split, int color, const Communicator& part, int rank) {
    const std::lock_guard lock(mutex_);
    std::erase_if(parts_, [](const auto& other) { return other.second.expired(); });
    auto& kept = parts_[{split, color}];
    auto found = kept.lock();
    if (found == nullptr)
      kept = found = std::make_shared<Progress>(
          std::vector<std::string>(static_cast<size_t>(part.size()), "another rank"));
    const std::lock_guard naming(found->mutex_);
    found->names_[static_cast<size_t>(part.rank())] = names_[static_cast<size_t>(rank)];
    return found;
  }

 private:
  std::vector<std::atomic<uint64_t>> begun_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::string> names_;
  std::map<std::pair<uint64_t, int>, std::weak_ptr<Progress>> parts_;  // those that are in use
};

class TimeLimit final : public ForwardingCommunicator {
 public:
  TimeLimit(std::unique_ptr<Communicator> inner, std::chrono::milliseconds limit,
            std::shared_ptr<Progress> progress)
      : ForwardingCommunicator(std::move(inner)),
        limit_(limit),
        rank_(rank()),
        progress_(std::move(progress)),
        watch_(start_thread([this] { watch(); })) {}

  ~TimeLimit() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    watch_.join();
  }

  void run(const Call& call) override {
    const Waiting waiting(*this, {kind_of(call), progress_->begin(rank_)});
    inner().run(call);
  }
  int64_t start(const Call& call) override {
    const Current started{kind_of(call), progress_->begin(rank_)};
    const int64_t operation = inner().start(call);
    started_[operation] = started;
    return operation;
  }
  int64_t start_send(const SendCall& call) override {
    return started_message(inner().start_send(call), call.destination);
  }
  int64_t start_receive(const ReceiveCall& call) override {
    return started_message(inner().start_receive(call), call.source);
  }
  Received wait(int64_t operation) override {
    const auto started = started_.extract(operation);
    const Waiting waiting(*this, started ? started.mapped() : Current{kMessage});
    return inner().wait(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    const uint64_t number = progress_->begin(rank_);
    const Waiting waiting(*this, {"Split", number});
    auto part = inner().split(color, key);
    if (part == nullptr) return nullptr;
    auto progress = progress_->part(number, color, *part, rank_);
    return std::make_unique<TimeLimit>(std::move(part), limit_, std::move(progress));
  }

 private:
  static constexpr std::string_view kMessage = "a message";
  // What is waited for.
  struct Current {
    std::string_view kind;    // nothing is empty
    uint64_t collective = 0;  // its number; 0 of a message
    int peer = kAnyRank;      // of a message
  };
  // While alive, the clock runs.
  class Waiting {
   public:
    Waiting(TimeLimit& limit, const Current& current) : limit_(limit) {
      limit_.set_current(current);
    }
    ~Waiting() { limit_.set_current({}); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    TimeLimit& limit_;
  };

  int64_t started_message(int64_t operation, int peer) {
    started_[operation] = {kMessage, 0, peer};
    return operation;
  }

  void set_current(const Current& current) {
    {
      const std::lock_guard lock(mutex_);
      current_ = current;
      ++calls_;
      deadline_ = Clock::now() + limit_;
    }
    changed_.notify_one();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !current_.kind.empty(); });
      const int64_t watched = calls_;
      const Clock::time_point deadline = deadline_;
      const auto over = [&] { return stopping_ || calls_ != watched; };
      if (!changed_.wait_until(lock, deadline, over)) {
        inner().abort(error());
        changed_.wait(lock, over);
      }
      if (stopping_) return;
    }
  }

  // REQUIRES: mutex_ held.
  Error error() const {
    auto late = progress_->late(current_.collective);
    if (current_.peer != kAnyRank) late = {progress_->name(current_.peer)};
    return Error(
        Code::kDeadlineExceeded,
        str(progress_->name(rank_), " has waited for ", static_cast<double>(limit_.count()) / 1000,
            " s in ", current_.kind, " for ", late.empty() ? "the others" : comma_separated(late)),
        late.empty() ? "" : late[0]);
  }

  const std::chrono::milliseconds limit_;
  const int rank_;
  const std::shared_ptr<Progress> progress_;
  std::map<int64_t, Current> started_;  // collectives and messages not waited for
  std::mutex mutex_;                    // guards what follows
  std::condition_variable changed_;
  Current current_;
  int64_t calls_ = 0;  // begun or ended
  Clock::time_point deadline_;
  bool stopping_ = false;
  std::thread watch_;  // last: it uses everything else
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> with_time_limit(
    std::vector<std::unique_ptr<Communicator>> ranks, std::chrono::milliseconds limit,
    const std::vector<std::string>& names) {
  const auto progress = std::make_shared<Progress>(names);
  for (auto& rank : ranks)
    rank = std::make_unique<TimeLimit>(std::move(rank), clamped(limit), progress);
  return ranks;
}

}  // namespace cohort
