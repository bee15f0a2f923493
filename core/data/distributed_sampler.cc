#include "core/data/distributed_sampler.h"

#include <mutex>
#include <numeric>
#include <utility>

#include "core/base/crc32c.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

// Rows per rank.
int64_t rows_each(int64_t rows, const DistributedSampler::Options& options) {
  const int64_t each = rows / options.num_replicas;
  return !options.drop_last && rows % options.num_replicas > 0 ? each + 1 : each;
}

void shuffle(std::vector<int64_t>& list, uint64_t seed) {
  RandomStream random(seed);
  for (size_t left = list.size(); left > 1; --left)
    std::swap(list[left - 1], list[random.below(left)]);
}

}  // namespace

struct DistributedSampler::State {
  State(int64_t rows, const Options& options) : rows(rows), options(options) {}

  const int64_t rows;
  const Options options;
  std::mutex mutex;
  std::optional<uint64_t> epoch;  // guarded by mutex
};

DistributedSampler::DistributedSampler(int64_t rows, const Options& options)
    : state_(std::make_shared<State>(rows, options)) {
  if (rows < 0) invalid("DistributedSampler: ", rows, " rows; a count cannot be negative");
  if (options.num_replicas < 1)
    invalid("DistributedSampler: num_replicas is ", options.num_replicas,
            "; it has to be 1 or more");
  if (options.rank < 0 || options.rank >= options.num_replicas)
    invalid("DistributedSampler: rank is ", options.rank, "; it has to be 0 to ",
            options.num_replicas - 1);
}

void DistributedSampler::set_epoch(uint64_t epoch) {
  const std::lock_guard lock(state_->mutex);
  state_->epoch = epoch;
}

std::optional<uint64_t> DistributedSampler::epoch() const {
  const std::lock_guard lock(state_->mutex);
  return state_->epoch;
}

int64_t DistributedSampler::rows() const { return state_->rows; }

const DistributedSampler::Options& DistributedSampler::options() const { return state_->options; }

int64_t DistributedSampler::size() const { return rows_each(state_->rows, state_->options); }

std::vector<int64_t> DistributedSampler::indices(uint64_t epoch) const {
  const Options& options = state_->options;
  std::vector<int64_t> list(static_cast<size_t>(state_->rows));
  std::iota(list.begin(), list.end(), 0);
  if (options.shuffle) shuffle(list, options.seed + epoch);
  std::vector<int64_t> mine;
  for (int64_t i = 0; i < size(); ++i)
    mine.push_back(list[static_cast<size_t>((options.rank + i * options.num_replicas) % rows())]);
  return mine;
}

namespace {

class SamplerStream : public Stream {
 public:
  SamplerStream(std::shared_ptr<const Table> table, const DistributedSampler& sampler,
                uint64_t epoch)
      : table_(std::move(table)), sampler_(sampler) {
    begin(sampler.epoch().value_or(epoch));
  }

  std::optional<Item> next() override {
    if (at_ == rows_.size()) return std::nullopt;
    return Item{.table = table_, .row = rows_[at_++]};
  }
  Position save() const override {
    return {"sampler", {static_cast<int64_t>(at_), static_cast<int64_t>(epoch_), order_}, {}};
  }
  void restore(const Position& position) override {
    position.expect("sampler", 3, 0);
    begin(static_cast<uint64_t>(position.numbers[1]));
    if (position.numbers[2] != order_)
      fail(Code::kFailedPrecondition,
           "this position was saved with another DistributedSampler: in the list of this one, rows "
           "would be left out and repeated");
    at_ = static_cast<size_t>(position.number(0, static_cast<int64_t>(rows_.size())));
  }

 private:
  void begin(uint64_t epoch) {
    epoch_ = epoch;
    rows_ = sampler_.indices(epoch);
    order_ =
        crc32c({reinterpret_cast<const char*>(rows_.data()), rows_.size() * sizeof(rows_.front())});
  }

  std::shared_ptr<const Table> table_;
  const DistributedSampler& sampler_;
  uint64_t epoch_ = 0;
  std::vector<int64_t> rows_;
  int64_t order_ = 0;  // tells these from other lists
  size_t at_ = 0;
};

class SamplerSource : public Source {
 public:
  SamplerSource(std::shared_ptr<const Table> table, DistributedSampler sampler)
      : table_(std::move(table)), sampler_(std::move(sampler)) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<SamplerStream>(table_, sampler_, pass.epoch);
  }
  int64_t cardinality() const override { return sampler_.size(); }
  // Ranks have other numbers of the same list.
  std::optional<Stage> stage(const Unseeded&) const override {
    const DistributedSampler::Options& options = sampler_.options();
    return Stage{.call = str("from_sampler() of ", sampler_.rows(), " rows for ",
                             options.num_replicas, " ranks", options.drop_last ? ", drop_last" : "",
                             options.shuffle ? "" : ", not shuffled"),
                 .draws = options.shuffle ? str("the seed ", options.seed) : "",
                 .role = Stage::Role::kShares};
  }
  std::optional<SamplerRank> sampler_rank() const override {
    const DistributedSampler::Options& options = sampler_.options();
    if (options.num_replicas == 1) return std::nullopt;
    return SamplerRank{options.rank, options.num_replicas};
  }
  bool is_share() const override { return sampler_rank().has_value(); }

 private:
  std::shared_ptr<const Table> table_;
  DistributedSampler sampler_;
};

}  // namespace

Dataset from_sampler(const Element& tensors, const DistributedSampler& sampler) {
  if (tensors.rows() != sampler.rows())
    invalid("from_sampler(): the sampler is for ", sampler.rows(), " rows, the tensors have ",
            tensors.rows());
  return Dataset(std::make_shared<SamplerSource>(table_of(tensors), sampler));
}

}  // namespace cohort::data
