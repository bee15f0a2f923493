#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <utility>

#include "core/data/background.h"
#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class PrefetchStream : public Stream {
 public:
  PrefetchStream(std::unique_ptr<Stream> input, int64_t count)
      : input_(std::move(input)), count_(count) {}

  std::optional<Item> next() override {
    start();
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return !ready_.empty(); });
    Ready& front = ready_.front();
    if (front.error) std::rethrow_exception(front.error);
    if (!front.item) return std::nullopt;
    std::optional<Item> item = std::move(front.item);
    position_ = std::move(front.after);
    ready_.pop_front();
    room_.notify_one();
    return item;
  }
  Position save() const override {
    return {"prefetch", {}, {started_ ? *position_ : input_->save()}};
  }
  void restore(const Position& position) override {
    position.expect("prefetch", 0, 1);
    input_->restore(position.inputs[0]);
  }

 private:
  // An element, an error or the end; the last two stay for every later next().
  struct Ready {
    std::optional<Item> item;
    std::exception_ptr error;
    Position after;  // of the input
  };

  void start() {
    if (started_) return;
    position_ = input_->save();
    thread_ = start_background([this](std::stop_token stop) { produce(stop); });
    started_ = true;
  }

  void produce(std::stop_token stop) {
    bool more = true;
    while (more && !stop.stop_requested()) {
      Ready made = make();
      more = made.item.has_value();
      std::unique_lock lock(mutex_);
      ready_.push_back(std::move(made));
      filled_.notify_one();
      room_.wait(lock, stop, [&] { return static_cast<int64_t>(ready_.size()) < count_; });
    }
  }

  Ready make() {
    try {
      std::optional<Item> item = input_->next();
      if (!item) return {};
      // Rows are read here, not by whoever takes them.
      return {Item{.element = std::move(*item).make()}, nullptr, input_->save()};
    } catch (...) {
      return {std::nullopt, std::current_exception(), {}};
    }
  }

  std::unique_ptr<Stream> input_;  // the thread's, once started
  const int64_t count_;
  bool started_ = false;
  std::optional<Position> position_;  // of the input after the last element that was taken

  std::mutex mutex_;
  std::condition_variable_any filled_, room_;
  std::deque<Ready> ready_;  // guarded by mutex_
  std::jthread thread_;      // last: it ends before what it uses
};

class PrefetchSource : public Decorator {
 public:
  PrefetchSource(std::shared_ptr<const Source> input, int64_t count)
      : Decorator(std::move(input)), count_(count) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<PrefetchStream>(input().open(pass), count_);
  }

 private:
  int64_t count_;
};

}  // namespace

Dataset Dataset::prefetch(int64_t count) const {
  if (count < 1) invalid("prefetch(", count, "): at least 1 element has to be kept ready");
  return Dataset(std::make_shared<PrefetchSource>(source_, count));
}

}  // namespace cohort::data
