#include <utility>

#include "core/data/dataset.h"
#include "core/data/parallel_map.h"
#include "core/data/source.h"
#include "core/data/user_function.h"

namespace cohort::data {
namespace {

class MapStream : public Stream {
 public:
  MapStream(std::unique_ptr<Stream> input, const MapFunction& function)
      : input_(std::move(input)), function_(function) {}

  std::optional<Item> next() override {
    std::optional<Item> item = input_->next();
    if (!item) return std::nullopt;
    return Item{.element =
                    calls_.of_element(read_++, [&] { return function_(std::move(*item).make()); })};
  }
  int64_t skip(int64_t count) override {
    const int64_t skipped = input_->skip(count);
    read_ += skipped;
    return skipped;
  }
  Position save() const override { return {"map", {}, {input_->save()}}; }
  void restore(const Position& position) override {
    position.expect("map", position.numbers.size(), 1);
    if (!position.numbers.empty())
      fail(Code::kFailedPrecondition,
           "this position was saved by map({.num_parallel = n, .deterministic = false}) after "
           "elements that had come out of turn; with num_parallel = 1 they would be repeated");
    calls_.set_restored();
    input_->restore(position.inputs[0]);
  }

 private:
  std::unique_ptr<Stream> input_;
  const MapFunction& function_;
  UserFunctionCalls calls_{"map()"};
  int64_t read_ = 0;  // elements of the input
};

class MapSource : public Decorator<MapSource> {
 public:
  MapSource(SourcePtr input, MapFunction function, const MapOptions& options)
      : Decorator(std::move(input)), function_(std::move(function)), options_(options) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    if (options_.num_parallel > 1) {
      MapOptions options = options_;
      options.deterministic |= pass.in_order;
      return parallel_map_stream(input().open(pass), function_, options);
    }
    return std::make_unique<MapStream>(input().open(pass), function_);
  }
  bool may_yield_batches() const override { return true; }
  bool is_ordered() const override {
    return (options_.deterministic || options_.num_parallel == 1) && Decorator::is_ordered();
  }

 private:
  MapFunction function_;
  MapOptions options_;
};

}  // namespace

Dataset Dataset::map(MapFunction function, MapOptions options) const {
  if (!function) invalid("map(): the function is empty");
  if (options.num_parallel < 1)
    invalid("map(): num_parallel is ", options.num_parallel, "; it has to be 1 or more");
  return Dataset(std::make_shared<MapSource>(source_, std::move(function), options));
}

}  // namespace cohort::data
