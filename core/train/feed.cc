#include "core/train/feed.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/notice.h"

namespace cohort {
namespace {

constexpr int64_t kBatchesAhead = 2;  // one to take while the next is being made

InputOptions with_prefetch(InputOptions options) {
  options.prefetch = kBatchesAhead;
  return options;
}

}  // namespace

Feed::Feed(Strategy& strategy, const data::Dataset& dataset, std::optional<int64_t> steps,
           std::string_view steps_name, InputOptions options)
    : dataset_(strategy.distribute_dataset(dataset, with_prefetch(options))), limit_(steps) {
  if (!steps && dataset_.cardinality() == data::kInfinite)
    invalid("the dataset never ends: say by ", steps_name, " how many batches to take");
}

std::optional<int64_t> Feed::steps() const {
  if (limit_) return limit_;
  const int64_t count = dataset_.cardinality();
  return count >= 0 ? std::optional(count) : std::nullopt;
}

void Feed::begin_epoch(int64_t epoch, int64_t steps_done) {
  const auto pass = static_cast<uint64_t>(epoch);
  const bool is_begun = first_ ? iterator_->epoch() == pass : limit_ && iterator_;
  if (!is_begun) begin_pass(pass);
  handed_out_ = steps_done;
}

const data::DistributedBatch& Feed::peek(int64_t epoch) {
  begin_epoch(epoch);
  first_ = next();
  handed_out_ = 0;
  return *first_;
}

void Feed::begin_pass(uint64_t pass) {
  first_.reset();
  iterator_.emplace(dataset_.iterate({.epoch = pass}));
}

std::optional<data::DistributedBatch> Feed::next() {
  if (limit_ && handed_out_ == *limit_) return std::nullopt;
  auto batch = first_ ? std::exchange(first_, std::nullopt) : iterator_->next();
  if (!batch && limit_) {
    begin_pass(iterator_->epoch() + 1);
    batch = iterator_->next();
  }
  if (!batch && (limit_ || handed_out_ == 0)) invalid("the dataset is empty");
  if (batch) ++handed_out_;
  return batch;
}

std::string Feed::save() const { return iterator_->save(); }

void Feed::restore(std::string_view position) {
  first_.reset();
  iterator_->restore(position);
}

void warn_of_end(const Strategy& strategy, std::string_view method, std::string_view steps_name,
                 std::optional<int64_t> steps, int64_t batches) {
  if (steps && batches < *steps && strategy.is_chief())
    print_notice(str("warning: ", method, ": ", steps_name, " is ", *steps,
                     ", and the dataset ends after ", batches, '\n'));
}

}  // namespace cohort
