#include <utility>

#include "core/data/dataset.h"
#include "core/data/read_ahead.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

class PrefetchStream : public Stream {
 public:
  PrefetchStream(std::unique_ptr<Stream> input, int64_t count)
      : input_(std::move(input)),
        ahead_([this] { return read(); }, [this] { return input_->save(); }, count) {}

  std::optional<Item> next() override { return ahead_.next(); }
  Position save() const override { return {"prefetch", {}, {ahead_.save()}}; }
  void restore(const Position& position) override {
    position.expect("prefetch", 0, 1);
    input_->restore(position.inputs[0]);
  }

 private:
  // Rows are read here, not by whoever takes them.
  std::optional<Item> read() {
    std::optional<Item> item = input_->next();
    if (!item) return std::nullopt;
    return Item{.element = std::move(*item).make()};
  }

  std::unique_ptr<Stream> input_;
  ReadAhead<Item> ahead_;  // last: its thread reads the input
};

class PrefetchSource : public Decorator<PrefetchSource> {
 public:
  PrefetchSource(SourcePtr input, int64_t count) : Decorator(std::move(input)), count_(count) {}
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
