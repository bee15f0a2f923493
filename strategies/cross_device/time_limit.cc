#include "strategies/cross_device/time_limit.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace cohort {
namespace {

using Clock = std::chrono::steady_clock;

class TimeLimit final : public Communicator {
 public:
  TimeLimit(std::unique_ptr<Communicator> inner, double seconds)
      : inner_(std::move(inner)), seconds_(seconds), watch_([this] { watch(); }) {}

  ~TimeLimit() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    watch_.join();
  }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  void set_observer(CommunicationObserver observer) override {
    inner_->set_observer(std::move(observer));
  }
  void abort(const Error& error) override { inner_->abort(error); }

  void all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) override {
    const Call call(*this, "all_reduce");
    inner_->all_reduce(segments, dtype, op);
  }
  int64_t start_all_reduce(std::span<const Segment> segments, DType dtype, ReduceOp op) override {
    return inner_->start_all_reduce(segments, dtype, op);
  }
  void wait(int64_t operation) override {
    const Call call(*this, "all_reduce");
    inner_->wait(operation);
  }
  void all_gather(const void* source, void* target, std::span<const int64_t> bytes) override {
    const Call call(*this, "all_gather");
    inner_->all_gather(source, target, bytes);
  }
  void broadcast(const void* source, void* target, int64_t bytes, int root) override {
    const Call call(*this, "broadcast");
    inner_->broadcast(source, target, bytes, root);
  }
  void barrier() override {
    const Call call(*this, "barrier");
    inner_->barrier();
  }

 private:
  // While alive, the clock runs.
  class Call {
   public:
    Call(TimeLimit& limit, const char* name) : limit_(limit) { limit_.set_current(name); }
    ~Call() { limit_.set_current(nullptr); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    TimeLimit& limit_;
  };

  void set_current(const char* name) {
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
      changed_.wait(lock, [&] { return stopping_ || current_ != nullptr; });
      const int64_t watched = calls_;
      const Clock::time_point deadline = deadline_;
      const auto over = [&] { return stopping_ || calls_ != watched; };
      if (!changed_.wait_until(lock, deadline, over)) {
        inner_->abort(Error(Code::kDeadlineExceeded,
                            str("replica ", rank(), " has waited for ", seconds_, " s in ",
                                current_, " for the other replicas (timeout_seconds)")));
        changed_.wait(lock, over);
      }
      if (stopping_) return;
    }
  }

  const std::unique_ptr<Communicator> inner_;
  const double seconds_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  const char* current_ = nullptr;  // the call that is waiting
  int64_t calls_ = 0;              // begun or ended
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
