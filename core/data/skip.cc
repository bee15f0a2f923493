#include <algorithm>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class SkipStream : public Stream {
 public:
  SkipStream(std::unique_ptr<Stream> input, int64_t count)
      : input_(std::move(input)), count_(count), to_skip_(count) {}

  std::optional<Item> next() override {
    input_->skip(std::exchange(to_skip_, 0));
    return input_->next();
  }
  int64_t skip(int64_t count) override {
    input_->skip(std::exchange(to_skip_, 0));
    return input_->skip(count);
  }
  Position save() const override { return {"skip", {to_skip_, count_}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("skip", 2, 1);
    position.expect_argument(1, count_);
    to_skip_ = position.number(0, count_);
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const int64_t count_;
  int64_t to_skip_;  // before the first element
};

class SkipSource : public Decorator<SkipSource> {
 public:
  SkipSource(SourcePtr input, int64_t count) : Decorator(std::move(input)), count_(count) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<SkipStream>(input().open(pass), count_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    return there < 0 ? there : std::max<int64_t>(there - count_, 0);
  }
  std::optional<Stage> stage(const Unseeded&) const override {
    if (count_ == 0) return std::nullopt;
    return Stage{.call = str("skip(", count_, ")"), .role = Stage::Role::kCounts};
  }
  ShardBelow shard_below() const override { return ShardBelow::kNothing; }

 private:
  int64_t count_;
};

}  // namespace

Dataset Dataset::skip(int64_t count) const {
  if (count < 0) invalid("skip(", count, "): a count cannot be negative");
  return Dataset(std::make_shared<SkipSource>(source_, count));
}

}  // namespace cohort::data
