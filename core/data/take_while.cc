#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"
#include "core/data/user_function.h"

namespace cohort::data {
namespace {

class TakeWhileStream : public Stream {
 public:
  TakeWhileStream(std::unique_ptr<Stream> input, const FilterFunction& holds)
      : input_(std::move(input)), holds_(holds) {}

  std::optional<Item> next() override {
    if (ended_) return std::nullopt;
    std::optional<Item> item = input_->next();
    ended_ = !item || !calls_.of_element(read_++, [&] { return holds_(item->make()); });
    return ended_ ? std::nullopt : std::move(item);
  }
  Position save() const override { return {"take_while", {ended_}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("take_while", 1, 1);
    ended_ = position.number(0, 1) != 0;
    calls_.set_restored();
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const FilterFunction& holds_;
  UserFunctionCalls calls_{"take_while()"};
  int64_t read_ = 0;    // elements of the input
  bool ended_ = false;  // the input may have more
};

class TakeWhileSource : public Decorator<TakeWhileSource> {
 public:
  TakeWhileSource(SourcePtr input, FilterFunction holds)
      : Decorator(std::move(input)), holds_(std::move(holds)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<TakeWhileStream>(input().open(pass), holds_);
  }
  int64_t cardinality() const override { return input().cardinality() == 0 ? 0 : kUnknown; }
  // Of batches, the function has to see whole ones: shares of one could end at different steps.
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = "take_while()"};
  }
  ShardBelow shard_below() const override { return ShardBelow::kNothing; }

 private:
  FilterFunction holds_;
};

}  // namespace

Dataset Dataset::take_while(FilterFunction holds) const {
  if (!holds) invalid("take_while(): the function is empty");
  return Dataset(std::make_shared<TakeWhileSource>(source_, std::move(holds)));
}

}  // namespace cohort::data
