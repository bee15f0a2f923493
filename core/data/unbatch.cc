#include <algorithm>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

// Where the stream is inside a batch, a position has the input's before that batch, which is then
// read again.
class UnbatchStream : public Stream {
 public:
  UnbatchStream(std::unique_ptr<Stream> input, bool is_ordered)
      : input_(std::move(input)), is_ordered_(is_ordered) {}

  std::optional<Item> next() override {
    while (rows_left() == 0) {
      check_cancelled();
      if (!open_next()) return std::nullopt;
    }
    return Item{.table = batch_, .row = row_++};
  }
  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (skipped < count && (rows_left() > 0 || open_next())) {
      check_cancelled();
      const int64_t here = std::min(count - skipped, rows_left());
      row_ += here;
      skipped += here;
    }
    return skipped;
  }
  Position save() const override {
    if (rows_left() == 0) return {"unbatch", {0}, {input_->save()}};
    return {"unbatch", {row_}, {before_}, is_ordered_};
  }
  void restore(const Position& position) override {
    position.expect("unbatch", 1, 1);
    input_->restore(position.inputs[0]);
    const int64_t row = position.number(0);
    if (row == 0) return;
    if (!open_next() || row > rows_left()) position.fail_corrupt();
    row_ = row;
  }

 private:
  int64_t rows_left() const { return batch_ ? batch_->rows() - row_ : 0; }

  bool open_next() {
    before_ = input_->save();
    std::optional<Item> item = input_->next();
    if (!item) return false;
    try {
      batch_ = table_of(std::move(*item).make());
    } catch (const Error& error) {
      throw error.with_context("unbatch()");
    }
    row_ = 0;
    return true;
  }

  std::unique_ptr<Stream> input_;
  const bool is_ordered_;  // the input (Source)
  Position before_;        // of the input, when it was about to yield the batch
  std::shared_ptr<const Table> batch_;
  int64_t row_ = 0;  // the next one
};

class UnbatchSource : public Decorator<UnbatchSource> {
 public:
  using Decorator::Decorator;
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const Pass below = of_reread_input(pass);
    return std::make_unique<UnbatchStream>(input().open(below), below.in_order);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    return there == 0 || there == kInfinite ? there : kUnknown;
  }
  // A batch(n) of the input is undone.
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = "unbatch()", .role = Stage::Role::kUnstacks};
  }
  ShardBelow shard_below() const override { return ShardBelow::kFiles; }
};

}  // namespace

Dataset Dataset::unbatch() const { return Dataset(std::make_shared<UnbatchSource>(source_)); }

}  // namespace cohort::data
