#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class ShardStream : public Stream {
 public:
  ShardStream(std::unique_ptr<Stream> input, int64_t num, int64_t index)
      : input_(std::move(input)), num_(num), index_(index), to_skip_(index) {}

  std::optional<Item> next() override {
    input_->skip(std::exchange(to_skip_, num_ - 1));
    return input_->next();
  }
  Position save() const override { return {"shard", {to_skip_, num_, index_}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("shard", 3, 1);
    if (position.number(1) != num_ || position.number(2) != index_)
      fail(Code::kFailedPrecondition, "this position was saved with shard(", position.number(1),
           ", ", position.number(2), "); this pipeline has shard(", num_, ", ", index_,
           "): elements would be left out and repeated");
    to_skip_ = position.number(0, num_ - 1);
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const int64_t num_, index_;
  int64_t to_skip_;  // elements of other shards before our next one
};

class ShardSource : public Decorator<ShardSource> {
 public:
  ShardSource(SourcePtr input, int64_t num, int64_t index)
      : Decorator(std::move(input)), num_(num), index_(index) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    // In another order, the shards would not be disjoint.
    Pass below = pass;
    below.in_order = true;
    return std::make_unique<ShardStream>(input().open(below), num_, index_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    return there < 0 ? there : there / num_ + (index_ < there % num_ ? 1 : 0);
  }
  bool is_ordered() const override { return true; }
  std::optional<Stage> stage(const Unseeded&) const override {
    if (num_ == 1) return std::nullopt;
    return Stage{.call = str("shard(", num_, ", ", index_, ")"), .role = Stage::Role::kCounts};
  }
  ShardBelow shard_below() const override { return ShardBelow::kNothing; }
  bool is_share() const override { return true; }

 private:
  int64_t num_, index_;
};

}  // namespace

Dataset Dataset::shard(int64_t num, int64_t index) const {
  if (num < 1) invalid("shard(", num, ", ", index, "): there has to be at least 1 shard");
  if (index < 0 || index >= num)
    invalid("shard(", num, ", ", index, "): the index has to be 0 to ", num - 1);
  return Dataset(std::make_shared<ShardSource>(source_, num, index));
}

}  // namespace cohort::data
