#include <algorithm>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class TakeStream : public Stream {
 public:
  TakeStream(std::unique_ptr<Stream> input, int64_t count)
      : input_(std::move(input)), count_(count) {}

  std::optional<Item> next() override {
    if (taken_ == count_) return std::nullopt;
    std::optional<Item> item = input_->next();
    if (item) ++taken_;
    return item;
  }
  int64_t skip(int64_t count) override {
    const int64_t skipped = input_->skip(std::min(count, count_ - taken_));
    taken_ += skipped;
    return skipped;
  }
  Position save() const override { return {"take", {taken_, count_}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("take", 2, 1);
    position.expect_argument(1, count_);
    taken_ = position.number(0, count_);
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const int64_t count_;
  int64_t taken_ = 0;
};

class TakeSource : public Decorator<TakeSource> {
 public:
  TakeSource(SourcePtr input, int64_t count) : Decorator(std::move(input)), count_(count) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<TakeStream>(input().open(pass), count_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    if (there == kInfinite || count_ == 0) return count_;
    return there == kUnknown ? kUnknown : std::min(there, count_);
  }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str("take(", count_, ")"), .role = Stage::Role::kCounts};
  }
  ShardBelow shard_below() const override { return ShardBelow::kNothing; }

 private:
  int64_t count_;
};

}  // namespace

Dataset Dataset::take(int64_t count) const {
  if (count < -1) invalid("take(", count, "): give a count, or -1 for all");
  if (count == -1) return *this;
  return Dataset(std::make_shared<TakeSource>(source_, count));
}

}  // namespace cohort::data
