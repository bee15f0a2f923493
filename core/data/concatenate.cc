#include <utility>

#include "core/data/dataset.h"
#include "core/data/union.h"

namespace cohort::data {
namespace {

// Opens the second input when the first has ended.
class ConcatenateStream : public Stream {
 public:
  ConcatenateStream(std::unique_ptr<Stream> first, SourcePtr second, const Pass& pass_of_second)
      : current_(std::move(first)), second_(std::move(second)), pass_of_second_(pass_of_second) {}

  std::optional<Item> next() override {
    std::optional<Item> item = current_->next();
    if (!item && !in_second_) {
      open_second();
      item = current_->next();
    }
    if (item) signature_.require(*item, in_second_ ? 1 : 0);
    return item;
  }
  int64_t skip(int64_t count) override {
    int64_t skipped = current_->skip(count);
    if (skipped < count && !in_second_) {
      open_second();
      skipped += current_->skip(count - skipped);
    }
    return skipped;
  }
  Position save() const override { return {"concatenate", {in_second_}, {current_->save()}}; }
  void restore(const Position& position) override {
    position.expect("concatenate", 1, 1);
    if (position.number(0, 1) != 0) open_second();
    current_->restore(position.inputs[0]);
  }

 private:
  void open_second() {
    current_ = second_->open(pass_of_second_);
    in_second_ = true;
  }

  std::unique_ptr<Stream> current_;
  const SourcePtr second_;
  const Pass pass_of_second_;
  bool in_second_ = false;
  SameSignature signature_{"concatenate"};
};

class ConcatenateSource : public Union<ConcatenateSource> {
 public:
  ConcatenateSource(SourcePtr first, SourcePtr second)
      : Union({std::move(first), std::move(second)}) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const Pass each = of_inputs(pass);
    return std::make_unique<ConcatenateStream>(inputs()[0]->open(each), inputs()[1], each);
  }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = "concatenate()"};
  }
};

}  // namespace

Dataset Dataset::concatenate(const Dataset& other) const {
  return Dataset(std::make_shared<ConcatenateSource>(source_, other.source_));
}

}  // namespace cohort::data
