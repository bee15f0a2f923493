#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"
#include "core/data/user_function.h"

namespace cohort::data {
namespace {

class FilterStream : public Stream {
 public:
  FilterStream(std::unique_ptr<Stream> input, const FilterFunction& keep)
      : input_(std::move(input)), keep_(keep) {}

  std::optional<Item> next() override {
    while (std::optional<Item> item = input_->next()) {
      if (calls_.of_element(read_++, [&] { return keep_(item->make()); })) return item;
      check_cancelled();
    }
    return std::nullopt;
  }
  Position save() const override { return {"filter", {}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("filter", 0, 1);
    calls_.set_restored();
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const FilterFunction& keep_;
  UserFunctionCalls calls_{"filter()"};
  int64_t read_ = 0;  // elements of the input
};

class FilterSource : public Decorator<FilterSource> {
 public:
  FilterSource(SourcePtr input, FilterFunction keep)
      : Decorator(std::move(input)), keep_(std::move(keep)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<FilterStream>(input().open(pass), keep_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    return there == 0 || there == kInfinite ? there : kUnknown;
  }
  std::optional<Stage> stage(const Unseeded&) const override { return Stage{.call = "filter()"}; }
  ShardBelow shard_below() const override { return ShardBelow::kFiles; }

 private:
  FilterFunction keep_;
};

}  // namespace

Dataset Dataset::filter(FilterFunction keep) const {
  if (!keep) invalid("filter(): the function is empty");
  return Dataset(std::make_shared<FilterSource>(source_, std::move(keep)));
}

}  // namespace cohort::data
