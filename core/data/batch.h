#pragma once

#include "core/data/source.h"

namespace cohort::data {

// Makes one batch of the next `size` items, or of the fewer that are left; nothing when there is
// none. `read`, the number of items in batches so far, is advanced.
std::optional<Element> read_batch(Stream& input, int64_t size, bool drop_remainder, int64_t& read);

// Dataset::batch().
class BatchSource : public Decorator<BatchSource> {
 public:
  BatchSource(SourcePtr input, int64_t size, bool drop_remainder)
      : Decorator(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override;
  int64_t cardinality() const override;
  std::optional<int64_t> batch_size() const override { return size_; }
  bool may_yield_batches() const override { return true; }

  bool drop_remainder() const { return drop_remainder_; }

 private:
  int64_t size_;
  bool drop_remainder_;
};

}  // namespace cohort::data
