#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/data/padding.h"
#include "core/data/source.h"

namespace cohort::data {

// What is stacked, for messages.
struct StackedItems {
  std::string_view maker;  // "batch"
  int64_t start;           // the number of the first in the dataset
  int64_t stride = 1;      // between the numbers of two neighbours
};
// Stacks items along a new first axis. kInvalidArgument when one has other names or specs than the
// first.
// REQUIRES: there is one.
Element stack(std::vector<Item> items, const StackedItems& which);

// Makes one batch of the next `size` items, or of the fewer that are left, unless these are to be
// dropped; nothing when there is none. `read`, the number of items in batches so far, is advanced.
// With a `padding`, items are padded before: it is one of padded_batch().
std::optional<Element> read_batch(Stream& input, int64_t size, bool drop_remainder, int64_t& read,
                                  const Padding* padding = nullptr);

// How many batches of `size` these elements make; kInfinite and kUnknown stay.
int64_t count_batches(int64_t elements, int64_t size, bool drop_remainder);

// Dataset::batch() and padded_batch().
class BatchSource : public Decorator<BatchSource> {
 public:
  BatchSource(SourcePtr input, int64_t size, bool drop_remainder,
              std::optional<Padding> padding = std::nullopt)
      : Decorator(std::move(input)),
        size_(size),
        drop_remainder_(drop_remainder),
        padding_(std::move(padding)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override;
  int64_t cardinality() const override;
  std::optional<int64_t> batch_size() const override {
    return is_divisible() ? std::optional(size_) : std::nullopt;
  }
  bool may_yield_batches() const override { return true; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str(padding_ ? "padded_batch(" : "batch(", size_,
                             drop_remainder_ ? ", drop)" : ")"),
                 .role = drop_remainder_ ? Stage::Role::kOrders : Stage::Role::kStacks};
  }
  ShardBelow shard_below() const override {
    return is_divisible() ? ShardBelow::kElements : ShardBelow::kFiles;
  }

  int64_t size() const { return size_; }
  bool drop_remainder() const { return drop_remainder_; }
  // Null for none.
  const Padding* padding() const { return padding_ ? &*padding_ : nullptr; }

 private:
  // Else the length of a row follows from all rows of its batch: shares are cut from whole ones.
  bool is_divisible() const { return !padding_ || padding_->is_fixed(); }

  int64_t size_;
  bool drop_remainder_;
  std::optional<Padding> padding_;
};

}  // namespace cohort::data
