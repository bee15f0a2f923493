#include <utility>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

constexpr int64_t kEndless = -1;

class RepeatStream : public Stream {
 public:
  RepeatStream(const Source& source, int64_t count, const Pass& pass)
      : source_(source), count_(count), pass_(pass) {
    open();
  }

  std::optional<Item> next() override {
    while (input_) {
      if (std::optional<Item> item = input_->next()) {
        pass_is_empty_ = false;
        return item;
      }
      end_pass();
    }
    return std::nullopt;
  }
  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (input_) {
      check_cancelled();
      const int64_t here = input_->skip(count - skipped);
      skipped += here;
      if (here > 0) pass_is_empty_ = false;
      if (skipped == count) break;
      end_pass();
    }
    return skipped;
  }
  Position save() const override {
    Position position{"repeat", {repetition_, pass_is_empty_, count_}, {}};
    if (input_) position.inputs.push_back(input_->save());
    return position;
  }
  void restore(const Position& position) override {
    const bool ended = position.inputs.empty();
    position.expect("repeat", 3, ended ? 0 : 1);
    position.expect_argument(2, count_);
    repetition_ = position.number(0, count_ == kEndless ? INT64_MAX : count_);
    pass_is_empty_ = position.number(1, 1) != 0;
    open();
    if (ended) return input_.reset();
    if (!input_) position.fail_corrupt();
    input_->restore(position.inputs[0]);
  }

 private:
  void open() {
    input_.reset();
    if (repetition_ == count_) return;
    Pass pass = pass_;
    const uint64_t epochs_each =
        count_ == kEndless ? uint64_t{1} << 32 : static_cast<uint64_t>(count_);
    pass.epoch = pass_.epoch * epochs_each + static_cast<uint64_t>(repetition_);
    input_ = source_.open(pass);
  }
  // An empty pass would be followed by empty ones for ever.
  void end_pass() {
    if (std::exchange(pass_is_empty_, true)) return input_.reset();
    ++repetition_;
    open();
  }

  const Source& source_;
  const int64_t count_;
  const Pass pass_;
  int64_t repetition_ = 0;
  bool pass_is_empty_ = true;      // so far
  std::unique_ptr<Stream> input_;  // the current pass; none at the end
};

class RepeatSource : public Decorator<RepeatSource> {
 public:
  RepeatSource(SourcePtr input, int64_t count) : Decorator(std::move(input)), count_(count) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    return std::make_unique<RepeatStream>(input(), count_, pass);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    if (count_ == 0 || there == 0) return 0;
    if (count_ == kEndless) return kInfinite;
    if (there < 0) return there;
    int64_t total = 0;
    return __builtin_mul_overflow(there, count_, &total) ? kInfinite : total;
  }
  std::optional<Stage> stage(const Unseeded&) const override {
    if (count_ == 1) return std::nullopt;
    return Stage{.call = str("repeat(", count_, ")"), .role = Stage::Role::kCounts};
  }

 private:
  int64_t count_;
};

}  // namespace

Dataset Dataset::repeat(int64_t count) const {
  if (count < kEndless) invalid("repeat(", count, "): give a count, or -1 for an endless dataset");
  return Dataset(std::make_shared<RepeatSource>(source_, count));
}

}  // namespace cohort::data
