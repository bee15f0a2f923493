#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class GeneratorStream : public Stream {
 public:
  explicit GeneratorStream(NextFunction next) : next_(std::move(next)) {}

  std::optional<Item> next() override {
    if (ended_) return std::nullopt;
    std::optional<Element> element = next_();
    if (!element) {
      ended_ = true;
      return std::nullopt;
    }
    ++yielded_;
    return Item{.element = *std::move(element)};
  }
  Position save() const override { return {"generator", {yielded_}, {}}; }
  void restore(const Position& position) override {
    position.expect("generator", 1, 0);
    if (skip(position.number(0)) != position.number(0)) position.fail_corrupt();
  }

 private:
  NextFunction next_;
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
    return std::make_unique<GeneratorStream>(std::move(next));
  }
  int64_t cardinality() const override { return cardinality_; }
  bool may_yield_batches() const override { return true; }

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
