#include <string_view>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class GeneratorStream : public Stream {
 public:
  GeneratorStream(NextFunction next, int64_t cardinality)
      : next_(std::move(next)), cardinality_(cardinality) {}

  std::optional<Item> next() override {
    if (ended_) return std::nullopt;
    std::optional<Element> element = next_();
    if (!element) {
      if (cardinality_ != kUnknown && yielded_ != cardinality_)
        fail_other_count(str("ended after ", yielded_));
      ended_ = true;
      return std::nullopt;
    }
    if (yielded_ == cardinality_) fail_other_count("went on after them");
    ++yielded_;
    return Item{.element = *std::move(element)};
  }
  Position save() const override { return {"generator", {yielded_}, {}}; }
  void restore(const Position& position) override {
    position.expect("generator", 1, 0);
    if (skip(position.number(0)) != position.number(0)) position.fail_corrupt();
  }

 private:
  // Other rows would be lost, or steps empty, where several workers read.
  [[noreturn]] void fail_other_count(std::string_view found) const {
    invalid("generator(): its cardinality says ",
            cardinality_ == kInfinite ? "that it is endless" : str(cardinality_, " elements"),
            ", but it ", found);
  }

  NextFunction next_;
  const int64_t cardinality_;
  int64_t yielded_ = 0;
  bool ended_ = false;
};

class GeneratorSource : public Source {
 public:
  GeneratorSource(std::function<NextFunction()> start, int64_t cardinality)
      : start_(std::move(start)), cardinality_(cardinality) {}
  std::unique_ptr<Stream> open(const Pass&) const override {
    NextFunction next = start_();
    if (!next) invalid("generator(): its start returned an empty function");
    return std::make_unique<GeneratorStream>(std::move(next), cardinality_);
  }
  int64_t cardinality() const override { return cardinality_; }
  bool may_yield_batches() const override { return true; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = "generator()"};
  }

 private:
  std::function<NextFunction()> start_;
  int64_t cardinality_;
};

}  // namespace

Dataset generator(std::function<NextFunction()> start, GeneratorOptions options) {
  if (!start) invalid("generator(): the function is empty");
  if (options.cardinality < kUnknown)
    invalid("generator(): no cardinality is ", options.cardinality);
  return Dataset(std::make_shared<GeneratorSource>(std::move(start), options.cardinality));
}

}  // namespace cohort::data
