#include <utility>
#include <vector>

#include "core/data/batch.h"
#include "core/data/dataset.h"
#include "core/data/padding.h"

namespace cohort::data {
namespace {

class PaddedBatchSource : public Decorator<PaddedBatchSource> {
 public:
  PaddedBatchSource(SourcePtr input, int64_t size, bool drop_remainder, Padding padding)
      : Decorator(std::move(input)),
        size_(size),
        drop_remainder_(drop_remainder),
        padding_(std::move(padding)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return batch_stream(input().open(pass), size_, drop_remainder_, &padding_);
  }
  int64_t cardinality() const override {
    return count_batches(input().cardinality(), size_, drop_remainder_);
  }
  // The length of a row follows from all rows of its batch, so that shares are cut from whole ones.
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  bool may_yield_batches() const override { return true; }
  ShardBelow shard_below() const override { return ShardBelow::kFiles; }

 private:
  int64_t size_;
  bool drop_remainder_;
  Padding padding_;
};

}  // namespace

Dataset Dataset::padded_batch(int64_t size, const PaddedBatchOptions& options) const {
  if (size < 1) invalid("padded_batch(", size, "): a batch has at least 1 element");
  Padding padding(options);
  if (!padding.is_fixed())
    return Dataset(std::make_shared<PaddedBatchSource>(source_, size, options.drop_remainder,
                                                       std::move(padding)));
  // Each element can be padded by itself, and batches be divided as those of batch().
  const auto pad = [padding](const Element& element) {
    std::vector<Element> alone(1, element);
    padding.pad(alone);
    return alone.front();
  };
  return map(pad).batch(size, {.drop_remainder = options.drop_remainder});
}

}  // namespace cohort::data
