#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "core/data/batch.h"
#include "core/data/dataset.h"

namespace cohort::data {
namespace {

struct WindowSizes {
  int64_t size, shift, stride;
  int64_t span;  // elements from the first of a window to its last
  bool drop_remainder;
};

// Keeps the elements from the start of the next window on. They are read again after a restart:
// for each place where a window starts, the input's position before it is kept with them.
class WindowStream : public Stream {
 public:
  WindowStream(std::unique_ptr<Stream> input, bool is_ordered, const WindowSizes& sizes)
      : input_(std::move(input)), is_ordered_(is_ordered), sizes_(sizes) {}

  std::optional<Item> next() override {
    if (!fill()) return std::nullopt;
    std::vector<Item> items;
    for (int64_t i = 0; i < buffered(); i += sizes_.stride)
      items.push_back(buffer_[static_cast<size_t>(i)]);
    Element window =
        stack(std::move(items),
              {.maker = "window", .start = windows_ * sizes_.shift, .stride = sizes_.stride});
    advance();
    return Item{.element = std::move(window)};
  }
  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    for (; skipped < count && fill(); ++skipped) advance();
    return skipped;
  }
  Position save() const override {
    std::vector<int64_t> numbers = {windows_, to_skip_, sizes_.size, sizes_.shift, sizes_.stride};
    if (starts_.empty()) return {"window", std::move(numbers), {input_->save()}};
    return {"window", std::move(numbers), {starts_.front()}, is_ordered_};
  }
  void restore(const Position& position) override {
    position.expect("window", 5, 1);
    const int64_t size = position.number(2), shift = position.number(3),
                  stride = position.number(4);
    if (size != sizes_.size || shift != sizes_.shift || stride != sizes_.stride)
      fail(Code::kFailedPrecondition, "this position was saved with window(", size, "), shift ",
           shift, " and stride ", stride, "; this pipeline has window(", sizes_.size, "), shift ",
           sizes_.shift, " and stride ", sizes_.stride);
    windows_ = position.number(0, INT64_MAX / sizes_.shift);
    to_skip_ = position.number(1, sizes_.shift);
    input_->restore(position.inputs[0]);
  }

 private:
  int64_t buffered() const { return static_cast<int64_t>(buffer_.size()); }

  // Whether there is another window.
  bool fill() {
    input_->skip(std::exchange(to_skip_, 0));
    while (buffered() < sizes_.span) {
      check_cancelled();
      const bool is_start = buffered() % sizes_.shift == 0;
      std::optional<Position> before = is_start ? std::optional(input_->save()) : std::nullopt;
      std::optional<Item> item = input_->next();
      if (!item) break;
      if (before) starts_.push_back(*std::move(before));
      buffer_.push_back(*std::move(item));
    }
    return sizes_.drop_remainder ? buffered() == sizes_.span : !buffer_.empty();
  }

  // To the start of the next window.
  void advance() {
    const int64_t done = std::min(sizes_.shift, buffered());
    buffer_.erase(buffer_.begin(), buffer_.begin() + done);
    starts_.pop_front();
    to_skip_ = sizes_.shift - done;
    ++windows_;
  }

  std::unique_ptr<Stream> input_;
  const bool is_ordered_;  // the input (Source)
  const WindowSizes sizes_;
  std::deque<Item> buffer_;
  std::deque<Position> starts_;  // of the input, before elements 0, shift, ... of the buffer
  int64_t to_skip_ = 0;          // elements before the next window, when the buffer is empty
  int64_t windows_ = 0;          // so far
};

class WindowSource : public Decorator<WindowSource> {
 public:
  WindowSource(SourcePtr input, const WindowSizes& sizes)
      : Decorator(std::move(input)), sizes_(sizes) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const Pass below = of_reread_input(pass);
    return std::make_unique<WindowStream>(input().open(below), below.in_order, sizes_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    if (there < 0 || !sizes_.drop_remainder)
      return count_batches(there, sizes_.shift, /*drop_remainder=*/false);
    return there < sizes_.span ? 0 : (there - sizes_.span) / sizes_.shift + 1;
  }
  // That of the input is about what is in a window.
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  bool may_yield_batches() const override { return true; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str("window(", sizes_.size, ") with shift ", sizes_.shift, " and stride ",
                             sizes_.stride, sizes_.drop_remainder ? ", drop" : "")};
  }
  ShardBelow shard_below() const override { return ShardBelow::kNothing; }

 private:
  WindowSizes sizes_;
};

}  // namespace

Dataset Dataset::window(int64_t size, WindowOptions options) const {
  const int64_t shift = options.shift.value_or(size), stride = options.stride;
  if (size < 1 || shift < 1 || stride < 1)
    invalid("window(", size, "): size, shift ", shift, " and stride ", stride,
            " have to be 1 or more");
  int64_t to_last = 0;
  if (__builtin_mul_overflow(size - 1, stride, &to_last) || to_last == INT64_MAX)
    invalid("window(", size, "): with stride ", stride, " it goes over more than 2^63 elements");
  return Dataset(std::make_shared<WindowSource>(
      source_, WindowSizes{size, shift, stride, to_last + 1, options.drop_remainder}));
}

}  // namespace cohort::data
