// Sources whose elements have numbers: from_tensor_slices() and range().

#include <algorithm>
#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

using ItemFunction = std::function<Item(int64_t)>;

class RowStream : public Stream {
 public:
  RowStream(int64_t count, const ItemFunction& item) : count_(count), item_(item) {}

  std::optional<Item> next() override {
    if (row_ == count_) return std::nullopt;
    return item_(row_++);
  }
  int64_t skip(int64_t count) override {
    const int64_t skipped = std::min(count, count_ - row_);
    row_ += skipped;
    return skipped;
  }
  Position save() const override { return {"rows", {row_, count_}, {}}; }
  void restore(const Position& position) override {
    position.expect("rows", 2, 0);
    if (position.number(1) != count_)
      fail(Code::kFailedPrecondition, "this position was saved in a dataset of ",
           position.number(1), " rows; this one has ", count_);
    row_ = position.number(0, count_);
  }

 private:
  const int64_t count_;
  const ItemFunction& item_;
  int64_t row_ = 0;
};

class RowSource : public Source {
 public:
  RowSource(int64_t count, ItemFunction item) : count_(count), item_(std::move(item)) {}
  std::unique_ptr<Stream> open(const Pass&) const override {
    return std::make_unique<RowStream>(count_, item_);
  }
  int64_t cardinality() const override { return count_; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str("a source of ", count_, " rows")};
  }

 private:
  int64_t count_;
  ItemFunction item_;
};

}  // namespace

Dataset from_table(std::shared_ptr<const Table> table) {
  const int64_t rows = table->rows();
  return Dataset(std::make_shared<RowSource>(
      rows, [table = std::move(table)](int64_t row) { return Item{.table = table, .row = row}; }));
}

Dataset from_tensor_slices(const Element& tensors) { return from_table(table_of(tensors)); }

Dataset range(int64_t count) {
  if (count < 0) invalid("range(", count, "): a count cannot be negative");
  return Dataset(std::make_shared<RowSource>(count, [](int64_t row) {
    return Item{.element = {{"value", Tensor::scalar(row)}}};
  }));
}

}  // namespace cohort::data
