#include "core/data/parallel_map.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "core/data/background.h"
#include "core/data/user_function.h"

namespace cohort::data {
namespace {

// Elements that may wait for a slower one before them, for each thread.
constexpr size_t kJobsPerThread = 2;

// One element on its way through the function.
struct Job {
  enum class State { kRunning, kDone, kDelivered };
  int64_t number;  // of the element since the stream was opened or restored
  Position after;  // of the input
  State state = State::kRunning;
  Element result;
  std::exception_ptr error;
};

// Threads take turns at reading the input, which puts jobs into a queue in its order; they then run
// outside the lock. A job leaves the queue once it and all before it were delivered.
class ParallelMapStream : public Stream {
 public:
  ParallelMapStream(std::unique_ptr<Stream> input, const MapFunction& function,
                    const MapOptions& options)
      : input_(std::move(input)), function_(function), options_(options) {}
  ~ParallelMapStream() override {
    for (std::jthread& thread : threads_) thread.request_stop();  // all, before any is waited for
  }

  std::optional<Item> next() override {
    start();
    std::unique_lock lock(mutex_);
    Job* job = nullptr;
    wait_cancellably(done_, lock,
                     [&] { return (job = deliverable()) != nullptr || (ended_ && jobs_.empty()); });
    if (!job) return std::nullopt;
    if (job->error) std::rethrow_exception(job->error);
    Item item{.element = std::move(job->result)};
    job->state = Job::State::kDelivered;
    drop_delivered();
    return item;
  }

  // Numbers: the elements, counted from the input's position, that were delivered out of turn.
  Position save() const override {
    if (threads_.empty()) return {"map", delivered_before_, {input_->save()}};
    std::lock_guard lock(mutex_);
    Position position{"map", {}, {before_first_}};
    for (const Job& job : jobs_)
      if (job.state == Job::State::kDelivered) position.numbers.push_back(job.number - first_);
    for (const int64_t number : delivered_before_)
      if (number >= read_) position.numbers.push_back(number - first_);
    return position;
  }

  void restore(const Position& position) override {
    position.expect("map", position.numbers.size(), 1);
    if (!std::is_sorted(position.numbers.begin(), position.numbers.end())) position.fail_corrupt();
    delivered_before_ = position.numbers;
    calls_.set_restored();
    input_->restore(position.inputs[0]);
  }

 private:
  void start() {
    if (!threads_.empty()) return;
    before_first_ = input_->save();
    for (int i = 0; i < options_.num_parallel; ++i)
      threads_.push_back(start_background([this](std::stop_token stop) { work(stop); }));
  }

  void work(std::stop_token stop) {
    while (true) {
      std::unique_lock lock(mutex_);
      const size_t most = kJobsPerThread * static_cast<size_t>(options_.num_parallel);
      room_.wait(lock, stop, [&] { return ended_ || (!reading_ && jobs_.size() < most); });
      if (ended_ || stop.stop_requested()) return;
      reading_ = true;
      lock.unlock();
      read_and_run();
    }
  }

  void read_and_run() {
    std::optional<Item> item;
    Position after;
    std::exception_ptr error;
    try {
      item = input_->next();
      if (item) after = input_->save();
    } catch (...) {
      error = std::current_exception();
    }
    if (Job* job = add_job(item.has_value(), std::move(after), error)) run(*job, *std::move(item));
  }

  // Ends this thread's turn at reading. Returns the new job if it has to run.
  Job* add_job(bool read, Position after, std::exception_ptr error) {
    std::lock_guard lock(mutex_);
    reading_ = false;
    ended_ = !read;
    room_.notify_all();
    done_.notify_one();
    if (!read && !error) return nullptr;
    Job& job =
        jobs_.emplace_back(Job{.number = read_++, .after = std::move(after), .error = error});
    if (error) {
      job.state = Job::State::kDone;
    } else if (std::binary_search(delivered_before_.begin(), delivered_before_.end(), job.number)) {
      job.state = Job::State::kDelivered;
      drop_delivered();
    } else {
      return &job;
    }
    return nullptr;
  }

  void run(Job& job, Item item) {
    Element result;
    std::exception_ptr error;
    try {
      result = calls_.of_element(job.number, [&] { return function_(std::move(item).make()); });
    } catch (...) {
      error = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    job.result = std::move(result);
    job.error = error;
    job.state = Job::State::kDone;
    done_.notify_one();
  }

  Job* deliverable() {
    const auto done = [](const Job& job) { return job.state == Job::State::kDone; };
    const auto end = options_.deterministic && !jobs_.empty() ? jobs_.begin() + 1 : jobs_.end();
    const auto found = std::find_if(jobs_.begin(), end, done);
    return found == end ? nullptr : &*found;
  }

  void drop_delivered() {
    while (!jobs_.empty() && jobs_.front().state == Job::State::kDelivered) {
      before_first_ = std::move(jobs_.front().after);
      first_ = jobs_.front().number + 1;
      jobs_.pop_front();
    }
    room_.notify_all();
  }

  std::unique_ptr<Stream> input_;  // of the thread whose turn it is, once there are threads
  const MapFunction& function_;
  const MapOptions options_;
  UserFunctionCalls calls_{"map()"};
  std::vector<int64_t> delivered_before_;  // by the stream that was restored; ascending

  mutable std::mutex mutex_;  // guards all below but threads_
  std::condition_variable_any done_, room_;
  std::deque<Job> jobs_;   // a deque: jobs stay where they are while others come and go at the ends
  Position before_first_;  // of the input before jobs_.front()
  int64_t first_ = 0;      // number of jobs_.front()
  int64_t read_ = 0;       // elements of the input
  bool reading_ = false;   // it is some thread's turn
  bool ended_ = false;     // nothing more is read
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace

std::unique_ptr<Stream> parallel_map_stream(std::unique_ptr<Stream> input,
                                            const MapFunction& function,
                                            const MapOptions& options) {
  return std::make_unique<ParallelMapStream>(std::move(input), function, options);
}

}  // namespace cohort::data
