#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/comma_separated.h"
#include "core/base/format_number.h"
#include "core/data/dataset.h"
#include "core/data/seed.h"
#include "core/data/union.h"

namespace cohort::data {
namespace {

class SampleStream : public Stream {
 public:
  // Draw i is random number i of `key`.
  SampleStream(std::vector<std::unique_ptr<Stream>> inputs, std::vector<double> weights,
               bool stop_on_empty, uint64_t key)
      : inputs_(std::move(inputs)),
        weights_(std::move(weights)),
        stop_on_empty_(stop_on_empty),
        key_(key) {}

  std::optional<Item> next() override {
    while (has_input()) {
      const size_t drawn = draw();
      if (std::optional<Item> item = inputs_[drawn]->next()) {
        signature_.require(*item, drawn);
        return item;
      }
      end(drawn);
    }
    return std::nullopt;
  }

  // Numbers: draws, the key, then which inputs have ended.
  Position save() const override {
    Position position{"sample_from", {draws_, static_cast<int64_t>(key_)}, {}};
    for (size_t i = 0; i < inputs_.size(); ++i) {
      position.numbers.push_back(weights_[i] > 0 ? 0 : 1);
      position.inputs.push_back(inputs_[i]->save());
    }
    return position;
  }

  void restore(const Position& position) override {
    position.expect("sample_from", 2 + inputs_.size(), inputs_.size());
    if (position.numbers[1] != static_cast<int64_t>(key_))
      fail(Code::kFailedPrecondition,
           "this position was saved with another seed or other weights of sample_from(), or in "
           "another place of a pipeline: elements would be left out and repeated");
    draws_ = position.number(0);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (position.number(2 + i, 1) != 0) end(i);
      inputs_[i]->restore(position.inputs[i]);
    }
  }

 private:
  bool has_input() const {
    return std::any_of(weights_.begin(), weights_.end(), [](double weight) { return weight > 0; });
  }

  // One of the inputs that have not ended.
  size_t draw() {
    const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    double left = total * RandomStream(key_, static_cast<uint64_t>(draws_++)).uniform();
    size_t drawn = 0;
    for (size_t i = 0; i < weights_.size() && left >= 0; ++i) {
      if (weights_[i] > 0) drawn = i;
      left -= weights_[i];
    }
    return drawn;
  }

  void end(size_t input) {
    if (stop_on_empty_)
      std::fill(weights_.begin(), weights_.end(), 0);
    else
      weights_[input] = 0;
  }

  std::vector<std::unique_ptr<Stream>> inputs_;
  std::vector<double> weights_;  // 0 for an input that has ended
  const bool stop_on_empty_;
  const uint64_t key_;
  int64_t draws_ = 0;
  SameSignature signature_{"sample_from"};
};

class SampleSource : public Union<SampleSource> {
 public:
  SampleSource(std::vector<SourcePtr> inputs, std::vector<double> weights,
               const SampleOptions& options)
      : Union(std::move(inputs)),
        weights_(std::move(weights)),
        seed_(options.seed),
        stop_on_empty_(options.stop_on_empty) {}
  std::unique_ptr<Stream> open(const Pass& pass) const override {
    const Pass each = of_inputs(pass);
    uint64_t key = mix(seed_.of(each), pass.epoch);
    for (const double weight : weights_) key = mix(key, std::bit_cast<uint64_t>(weight));
    std::vector<std::unique_ptr<Stream>> streams;
    for (const SourcePtr& input : inputs()) streams.push_back(input->open(each));
    return std::make_unique<SampleStream>(std::move(streams), weights_, stop_on_empty_, key);
  }
  void add_unseeded(Unseeded& found) const override {
    Union::add_unseeded(found);
    seed_.add_to(found);
  }
  std::optional<Stage> stage(const Unseeded& all) const override {
    const auto exact = [](double weight) {
      return format_number(weight, std::chars_format::general, 17);
    };
    return Stage{.call = str("sample_from() of ", inputs().size(), " datasets with the weights ",
                             comma_separated(weights_, exact),
                             stop_on_empty_ ? ", which stops on an empty one" : ""),
                 .draws = seed_.in_words(all)};
  }
  int64_t cardinality() const override {
    if (!stop_on_empty_ || inputs().size() == 1) return Union::cardinality();
    return every_input_has([](int64_t count) { return count == kInfinite; }) ? kInfinite : kUnknown;
  }
  // Where pipelines may have different numbers of steps of one input, each has to see whole batches
  // to stop where the others do.
  std::optional<int64_t> batch_size() const override {
    const bool steps_are_alike =
        !stop_on_empty_ || every_input_has([](int64_t count) { return count != kUnknown; });
    return steps_are_alike ? Union::batch_size() : std::nullopt;
  }

 private:
  template <typename Predicate>
  bool every_input_has(const Predicate& cardinality_is) const {
    const auto holds = [&](const SourcePtr& input) { return cardinality_is(input->cardinality()); };
    return std::ranges::all_of(inputs(), holds);
  }

  std::vector<double> weights_;
  Seed seed_;
  bool stop_on_empty_;
};

}  // namespace

Dataset sample_from(const std::vector<Dataset>& datasets, const std::vector<double>& weights,
                    SampleOptions options) {
  if (datasets.empty()) invalid("sample_from(): there is no dataset");
  if (!weights.empty() && weights.size() != datasets.size())
    invalid("sample_from(): ", weights.size(), " weights for ", datasets.size(), " datasets");
  std::vector<SourcePtr> drawn_from;
  std::vector<double> positive;
  double total = 0;
  for (size_t i = 0; i < datasets.size(); ++i) {
    const double weight = weights.empty() ? 1 : weights[i];
    total += weight;
    if (!(weight >= 0) || !std::isfinite(total))
      invalid("sample_from(): the weight of dataset ", i, " is ", weight,
              "; weights are 0 or more, and their sum is finite");
    if (weight == 0) continue;
    drawn_from.push_back(datasets[i].source());
    positive.push_back(weight);
  }
  if (drawn_from.empty()) invalid("sample_from(): the weight of every dataset is 0");
  return Dataset(
      std::make_shared<SampleSource>(std::move(drawn_from), std::move(positive), options));
}

}  // namespace cohort::data
