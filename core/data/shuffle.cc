#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "core/data/dataset.h"
#include "core/data/seed.h"

namespace cohort::data {
namespace {

// An element in the buffer, with its number in the input.
struct Slot {
  int64_t number;
  Item item;
};

// Takes a random slot out of a buffer. How the others are rearranged is part of the order.
template <typename T>
T draw(std::vector<T>& buffer, RandomStream& random) {
  T& slot = buffer[random.below(buffer.size())];
  T drawn = std::exchange(slot, std::move(buffer.back()));
  buffer.pop_back();
  return drawn;
}

// Which elements are in the buffer follows from how many were drawn, so a position holds that
// count. Only the elements themselves have to be read again, from the nearest earlier place where
// the input's position was noted: one is noted each time a buffer's worth was read, and forgotten
// when all before the next is drawn.
class ShuffleStream : public Stream {
 public:
  // `most` is an upper bound of the elements of `input`, which may be ordered (Source).
  ShuffleStream(std::unique_ptr<Stream> input, bool is_ordered, int64_t most, int64_t buffer_size,
                uint64_t seed, uint64_t epoch)
      : input_(std::move(input)),
        is_ordered_(is_ordered),
        most_(most),
        buffer_size_(buffer_size),
        order_(static_cast<int64_t>(mix(seed, epoch))),
        random_(seed, epoch) {}

  std::optional<Item> next() override {
    while (!input_ended_ && static_cast<int64_t>(buffer_.size()) < buffer_size_) read();
    if (buffer_.empty()) return std::nullopt;
    ++drawn_;
    return draw(buffer_, random_).item;
  }

  Position save() const override {
    const Note note = notes_.empty() ? Note{read_, input_->save()} : notes_.front();
    return {"shuffle",
            {buffer_size_, drawn_, read_, note.number, order_},
            {note.position},
            is_ordered_};
  }

  void restore(const Position& position) override {
    position.expect("shuffle", 5, 1);
    position.expect_argument(0, buffer_size_);
    if (position.numbers[4] != order_)
      fail(Code::kFailedPrecondition, "this position was saved with another seed of shuffle(",
           buffer_size_,
           "), with other shuffles before it or on another input pipeline: in another order, "
           "elements would be left out and repeated");
    read_ = position.number(2, most_);
    drawn_ = position.number(1, read_);
    std::vector<int64_t> numbers = replay_draws(position);
    input_->restore(position.inputs[0]);
    notes_.push_back({position.number(3, read_), position.inputs[0]});
    read_again(numbers, position);
  }

 private:
  // Where the input stood before it yielded element `number`.
  struct Note {
    int64_t number;
    Position position;
  };

  void read() {
    check_cancelled();
    if (read_ % buffer_size_ == 0) note_position();
    std::optional<Item> item = input_->next();
    if (item)
      buffer_.push_back({read_++, *std::move(item)});
    else
      input_ended_ = true;
  }

  void note_position() {
    int64_t oldest = read_;
    for (const Slot& slot : buffer_) oldest = std::min(oldest, slot.number);
    notes_.push_back({read_, input_->save()});
    while (notes_.size() > 1 && notes_[1].number <= oldest) notes_.pop_front();
  }

  // The numbers that the buffer holds, in order, after `drawn_` draws.
  std::vector<int64_t> replay_draws(const Position& position) {
    std::vector<int64_t> numbers;
    int64_t number = 0;
    for (int64_t i = 0; i < drawn_; ++i) {
      while (static_cast<int64_t>(numbers.size()) < buffer_size_ && number < read_)
        numbers.push_back(number++);
      if (numbers.empty()) position.fail_corrupt();
      draw(numbers, random_);
    }
    if (number != read_) position.fail_corrupt();
    return numbers;
  }

  // Fills the buffer with the elements of these numbers; the input stands at the only note.
  void read_again(const std::vector<int64_t>& numbers, const Position& position) {
    std::vector<std::pair<int64_t, size_t>> wanted;  // number, place in the buffer
    for (size_t place = 0; place < numbers.size(); ++place)
      wanted.emplace_back(numbers[place], place);
    std::sort(wanted.begin(), wanted.end());
    buffer_.resize(numbers.size());
    int64_t at = notes_.front().number;
    for (const auto& [number, place] : wanted) {
      if (number < at || input_->skip(number - at) != number - at) position.fail_corrupt();
      std::optional<Item> item = input_->next();
      if (!item) position.fail_corrupt();
      buffer_[place] = {number, *std::move(item)};
      at = number + 1;
    }
    if (input_->skip(read_ - at) != read_ - at) position.fail_corrupt();
  }

  std::unique_ptr<Stream> input_;
  const bool is_ordered_;
  const int64_t most_, buffer_size_;
  const int64_t order_;  // tells orders apart
  RandomStream random_;
  std::vector<Slot> buffer_;
  std::deque<Note> notes_;  // the first is not after any element in the buffer
  int64_t drawn_ = 0;
  int64_t read_ = 0;
  bool input_ended_ = false;
};

class ShuffleSource : public Decorator<ShuffleSource> {
 public:
  ShuffleSource(SourcePtr input, int64_t buffer_size, const ShuffleOptions& options)
      : Decorator(std::move(input)),
        buffer_size_(buffer_size),
        seed_(options.seed),
        reshuffle_(options.reshuffle_each_iteration) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const int64_t most = cardinality() < 0 ? INT64_MAX : cardinality();
    const Pass below = of_reread_input(of_inputs(pass));
    return std::make_unique<ShuffleStream>(input().open(below), below.in_order, most, buffer_size_,
                                           seed_.of(below), reshuffle_ ? pass.epoch : 0);
  }
  std::optional<Stage> stage(const Unseeded& all) const override {
    return Stage{.call = str("shuffle(", buffer_size_,
                             reshuffle_ ? ")" : ", {.reshuffle_each_iteration = false})"),
                 .draws = seed_.in_words(all)};
  }
  void add_unseeded(Unseeded& found) const override {
    Decorator::add_unseeded(found);
    seed_.add_to(found);
  }

 private:
  int64_t buffer_size_;
  Seed seed_;
  bool reshuffle_;
};

}  // namespace

Dataset Dataset::shuffle(int64_t buffer_size, ShuffleOptions options) const {
  if (buffer_size < 1)
    invalid("shuffle(", buffer_size, "): the buffer has to hold at least 1 element");
  return Dataset(std::make_shared<ShuffleSource>(source_, buffer_size, options));
}

}  // namespace cohort::data
