#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/source.h"

namespace cohort::data {
namespace {

// One of the inputs that are read in turn, made from element `number` of the outer input.
struct Open {
  int64_t number;
  Position before;  // of the outer input, when it was about to yield that element
  Dataset dataset;
  std::unique_ptr<Stream> stream;
};

class InterleaveStream : public Stream {
 public:
  using OpenFunction = std::function<std::unique_ptr<Stream>(const Dataset&, int64_t number)>;

  InterleaveStream(std::unique_ptr<Stream> input, bool is_ordered,
                   const InterleaveFunction& function, OpenFunction open,
                   const InterleaveOptions& options)
      : input_(std::move(input)),
        is_ordered_(is_ordered),
        function_(function),
        open_(std::move(open)),
        options_(options) {}

  std::optional<Item> next() override {
    while (!input_ended_ || !cycle_.empty()) {
      check_cancelled();
      if (!cycle_.contains(turn_) && !open_next()) {
        turn_to_next_open();
        continue;
      }
      if (std::optional<Item> item = cycle_.at(turn_).stream->next()) {
        if (++taken_ == options_.block_length) end_turn();
        return item;
      }
      cycle_.erase(turn_);
      end_turn();
    }
    return std::nullopt;
  }

  // Numbers: the options, turn, taken, elements read, then place and number of each open input.
  // Inputs: the outer one as it was before the oldest that is still open, then the open ones.
  Position save() const override {
    Position position{"interleave",
                      {options_.cycle_length, options_.block_length, turn_, taken_, read_},
                      {},
                      is_ordered_};
    const Open* first = oldest();
    position.inputs.push_back(first ? first->before : input_->save());
    for (const auto& [place, open] : cycle_) {
      position.numbers.insert(position.numbers.end(), {place, open.number});
      position.inputs.push_back(open.stream->save());
    }
    return position;
  }

  void restore(const Position& position) override {
    const size_t open = position.inputs.empty() ? 0 : position.inputs.size() - 1;
    position.expect("interleave", 5 + 2 * open, 1 + open);
    if (position.numbers[0] != options_.cycle_length ||
        position.numbers[1] != options_.block_length)
      fail(Code::kFailedPrecondition,
           "this position was saved with an interleave() of cycle_length ", position.numbers[0],
           " and block_length ", position.numbers[1], "; this pipeline has ", options_.cycle_length,
           " and ", options_.block_length);
    turn_ = position.number(2, options_.cycle_length - 1);
    taken_ = position.number(3, options_.block_length - 1);
    const int64_t read = position.number(4);
    // By number: the elements to open again, as indices of the open inputs in the position.
    std::map<int64_t, size_t> wanted;
    for (size_t i = 0; i < open; ++i) wanted[position.number(6 + 2 * i, read)] = i;
    if (wanted.size() != open) position.fail_corrupt();
    read_ = wanted.empty() ? read : wanted.begin()->first;
    input_->restore(position.inputs[0]);
    for (const auto& [number, i] : wanted) {
      skip_to(number, position);
      const int64_t place = position.number(5 + 2 * i, options_.cycle_length - 1);
      if (cycle_.contains(place) || !open_at(place)) position.fail_corrupt();
      cycle_.at(place).stream->restore(position.inputs[1 + i]);
    }
    skip_to(read, position);
  }

 private:
  bool open_next() { return !input_ended_ && open_at(turn_); }

  bool open_at(int64_t place) {
    Position before = input_->save();
    std::optional<Item> item = input_->next();
    input_ended_ = !item;
    if (!item) return false;
    Dataset dataset = function_(std::move(*item).make());
    std::unique_ptr<Stream> stream = open_(dataset, read_);
    cycle_.insert_or_assign(
        place, Open{read_++, std::move(before), std::move(dataset), std::move(stream)});
    return true;
  }

  void end_turn() {
    turn_ = (turn_ + 1) % options_.cycle_length;
    taken_ = 0;
  }

  // REQUIRES: the input has ended, so that places without an open input stay empty.
  void turn_to_next_open() {
    if (cycle_.empty()) return;
    const auto next = cycle_.lower_bound(turn_);
    turn_ = next == cycle_.end() ? cycle_.begin()->first : next->first;
    taken_ = 0;
  }

  void skip_to(int64_t number, const Position& position) {
    if (number < read_ || input_->skip(number - read_) != number - read_) position.fail_corrupt();
    read_ = number;
  }

  const Open* oldest() const {
    const Open* oldest = nullptr;
    for (const auto& [place, open] : cycle_)
      if (!oldest || open.number < oldest->number) oldest = &open;
    return oldest;
  }

  std::unique_ptr<Stream> input_;
  const bool is_ordered_;  // the input (Source)
  const InterleaveFunction& function_;
  OpenFunction open_;
  const InterleaveOptions options_;
  std::map<int64_t, Open> cycle_;  // by place in the cycle
  int64_t turn_ = 0;               // the place that is read now
  int64_t taken_ = 0;              // elements of this turn so far
  int64_t read_ = 0;               // elements of the outer input
  bool input_ended_ = false;
};

class InterleaveSource : public Decorator<InterleaveSource> {
 public:
  InterleaveSource(SourcePtr input, InterleaveFunction function, const InterleaveOptions& options)
      : Decorator(std::move(input)), function_(std::move(function)), options_(options) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    auto open_inner = [pass](const Dataset& dataset, int64_t number) {
      return dataset.source()->open(pass.inner(1 + static_cast<uint64_t>(number)));
    };
    const Pass outer = of_reread_input(pass);
    return std::make_unique<InterleaveStream>(input().open(outer), outer.in_order, function_,
                                              open_inner, options_);
  }
  int64_t cardinality() const override {
    const int64_t there = input().cardinality();
    return there == 0 || there == kInfinite ? there : kUnknown;
  }
  // That of the datasets made by the function, which are not known yet.
  std::optional<int64_t> batch_size() const override { return std::nullopt; }
  bool may_yield_batches() const override { return true; }
  std::optional<Stage> stage(const Unseeded&) const override {
    return Stage{.call = str("interleave() with cycle_length ", options_.cycle_length,
                             " and block_length ", options_.block_length)};
  }
  ShardBelow shard_below() const override { return ShardBelow::kFiles; }

 private:
  InterleaveFunction function_;
  InterleaveOptions options_;
};

}  // namespace

Dataset Dataset::interleave(InterleaveFunction function, InterleaveOptions options) const {
  if (!function) invalid("interleave(): the function is empty");
  if (options.cycle_length < 1 || options.block_length < 1)
    invalid("interleave(): cycle_length ", options.cycle_length, " and block_length ",
            options.block_length, " have to be 1 or more");
  return Dataset(std::make_shared<InterleaveSource>(source_, std::move(function), options));
}

}  // namespace cohort::data
