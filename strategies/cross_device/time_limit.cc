#include "strategies/cross_device/time_limit.h"

#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "core/collective/forwarding_communicator.h"

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

class TimeLimit final : public ForwardingCommunicator {
 public:
  TimeLimit(std::unique_ptr<Communicator> inner, double seconds)
      : ForwardingCommunicator(std::move(inner)), seconds_(seconds), watch_([this] { watch(); }) {}

  ~TimeLimit() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    watch_.join();
  }

  void run(const Call& call) override {
    const Waiting waiting(*this, kind_of(call));
    inner().run(call);
  }
  int64_t start(const Call& call) override {
    const int64_t operation = inner().start(call);
    kinds_[operation] = kind_of(call);
    return operation;
  }
  Received wait(int64_t operation) override {
    const auto started = kinds_.extract(operation);
    const Waiting waiting(*this, started ? started.mapped() : "a message");
    return inner().wait(operation);
  }
  std::unique_ptr<Communicator> split(int color, int key) override {
    auto part = inner().split(color, key);
    return part == nullptr ? nullptr : with_time_limit(std::move(part), seconds_);
  }

 private:
  // While alive, the clock runs.
  class Waiting {
   public:
    Waiting(TimeLimit& limit, std::string_view kind) : limit_(limit) { limit_.set_current(kind); }
    ~Waiting() { limit_.set_current({}); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    TimeLimit& limit_;
  };

  void set_current(std::string_view name) {
    {
      const std::lock_guard lock(mutex_);
      current_ = name;
      ++calls_;
      deadline_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(seconds_));
    }
    changed_.notify_one();
  }

  void watch() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || !current_.empty(); });
      const int64_t watched = calls_;
      const Clock::time_point deadline = deadline_;
      const auto over = [&] { return stopping_ || calls_ != watched; };
      if (!changed_.wait_until(lock, deadline, over)) {
        inner().abort(Error(Code::kDeadlineExceeded,
                            str("replica ", rank(), " has waited for ", seconds_, " s in ",
                                current_, " for the other replicas (timeout_seconds)")));
        changed_.wait(lock, over);
      }
      if (stopping_) return;
    }
  }

  const double seconds_;
  std::map<int64_t, std::string_view> kinds_;  // of what was started and not waited for
  std::mutex mutex_;                           // guards what follows
  std::condition_variable changed_;
  std::string_view current_;  // the call that is waiting; none is empty
  int64_t calls_ = 0;         // begun or ended
  Clock::time_point deadline_;
  bool stopping_ = false;
  std::thread watch_;  // last: it uses everything else
};

}  // namespace

std::unique_ptr<Communicator> with_time_limit(std::unique_ptr<Communicator> communicator,
                                              double seconds) {
  return std::make_unique<TimeLimit>(std::move(communicator), seconds);
}

}  // namespace cohort
