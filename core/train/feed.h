#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/data/distributed_dataset.h"

namespace cohort {

// The batches of one epoch after the other, divided over the replicas and made ready in the
// background. Without `steps`, epoch e is pass e over the dataset; with it, an epoch has that many
// batches and passes follow each other.
class Feed {
 public:
  // kInvalidArgument for what can be seen not to be batches, and for batches that never end without
  // a number of steps, whose option is called `steps_name`. `prefetch` is the feed's own affair.
  Feed(Strategy& strategy, const data::Dataset& dataset, std::optional<int64_t> steps,
       std::string_view steps_name, InputOptions options = {});

  // The number of batches of an epoch, where it can be known beforehand.
  std::optional<int64_t> steps() const;
  // `steps_done` is how many of its batches have been trained on before.
  void begin_epoch(int64_t epoch, int64_t steps_done = 0);
  // The first batch of an epoch that is still to begin, where next() gives it all the same.
  const data::DistributedBatch& peek(int64_t epoch);
  // Nothing at the end of the epoch. kInvalidArgument when the dataset turns out to be empty.
  std::optional<data::DistributedBatch> next();

  // How many that has been in this epoch.
  int64_t handed_out() const { return handed_out_; }
  // Whether an epoch was begun.
  bool begun() const { return iterator_ && !first_; }
  // Where the feed stands within its epoch, as JSON, and continuing there. Both after
  // begin_epoch().
  std::string save() const;
  void restore(std::string_view position);

 private:
  void begin_pass(uint64_t pass);

  data::DistributedDataset dataset_;
  std::optional<int64_t> limit_;
  std::optional<data::DistributedIterator> iterator_;
  std::optional<data::DistributedBatch> first_;  // of the iterator's pass, for next()
  int64_t handed_out_ = 0;                       // in this epoch
};

// Says, on the chief, that data have ended after so many `batches`, where the option `steps_name`
// of `method` has asked for more.
void warn_of_end(const Strategy& strategy, std::string_view method, std::string_view steps_name,
                 std::optional<int64_t> steps, int64_t batches);

}  // namespace cohort
