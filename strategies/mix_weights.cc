#include "strategies/mix_weights.h"

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/collective/split.h"
#include "core/distribute/strategy.h"
#include "core/train/training.h"
#include "strategies/collective/mixing.h"

namespace cohort::callbacks {
namespace {

// What workers compare before they train. Without padding.
struct Settings {
  int64_t mixing, every_steps;
  double neighbour_weight;
  uint64_t seed;
  int64_t with_moving_statistics;
  bool operator==(const Settings&) const = default;
};

std::string_view name_of(Mixing mixing) {
  switch (mixing) {
    case Mixing::kRing:
      return "kRing";
    case Mixing::kRandomPairs:
      return "kRandomPairs";
    case Mixing::kAverage:
      return "kAverage";
  }
  return "no mixing that is known";
}

std::string describe(const Settings& s) {
  return str("{", name_of(static_cast<Mixing>(s.mixing)), ", every_steps ", s.every_steps,
             ", neighbour_weight ", s.neighbour_weight, ", seed ", s.seed, ", ",
             s.with_moving_statistics != 0 ? "with" : "without", " moving statistics}");
}

void require_own_model(Strategy& strategy) {
  const auto refuse = [&](const auto&... what_it_does) {
    fail(Code::kFailedPrecondition,
         "MixWeights is for workers that train a model of their own each, but ", strategy.name(),
         what_it_does...);
  };
  if (const auto workers = strategy.workers().size(); workers > 1)
    refuse(" trains one model on ", workers, " workers");
  if (strategy.remote_updates() != nullptr) refuse(" keeps one for all on parameter servers");
}

class MixWeightsCallback : public Callback {
 public:
  MixWeightsCallback(Communicator& group, const MixWeightsOptions& options)
      : group_(group), options_(options) {}

  void on_train_begin(Training& training) override {
    require_own_model(training.model().strategy());
    compare_settings();
  }

  void on_batch_end(Training& training) override {
    const int64_t step = training.total_steps();
    if (step % options_.every_steps != 0) return;
    const Variables variables = mixed_variables(training.model());
    std::vector<Tensor> values;
    for (const auto& variable : variables) values.push_back(variable->value());
    mix(values, step, [&] { return row_of(step / options_.every_steps); });
    for (size_t i = 0; i < variables.size(); ++i) variables[i]->assign(values[i]);
  }

  // With all, so that whoever still waits for this worker, in whatever pair, hears of its end.
  void on_train_end(Training& training) override {
    if (training.interrupted())
      group_.abort(Error(Code::kCancelled,
                         str("the training of rank ", group_.rank(), " has been interrupted")));
    else
      mix({}, training.total_steps(), [&] { return row_of_all(); });
  }

 private:
  void compare_settings() {
    const Settings own{.mixing = static_cast<int64_t>(options_.mixing),
                       .every_steps = options_.every_steps,
                       .neighbour_weight = options_.neighbour_weight,
                       .seed = options_.seed,
                       .with_moving_statistics = options_.with_moving_statistics ? 1 : 0};
    const std::vector<Settings> all = tell_all(group_, "the options of MixWeights", own);
    for (size_t r = 1; r < all.size(); ++r)
      if (all[r] != all[0])
        invalid("MixWeights has the same options on all workers, but rank 0 has ", describe(all[0]),
                " and rank ", r, " has ", describe(all[r]));
  }

  Variables mixed_variables(const Model& model) const {
    if (!options_.with_moving_statistics) return model.trainable_variables();
    Variables floating;
    for (const auto& variable : model.variables())
      if (is_floating(variable->spec().dtype)) floating.push_back(variable);
    return floating;
  }

  // An average has no rows, and is not asked for one.
  template <typename MakeRow>
  void mix(std::span<Tensor> values, int64_t step, const MakeRow& make_row) {
    try {
      if (options_.mixing == Mixing::kAverage)
        collective::average(group_, values, step);
      else
        collective::mix(group_, values, make_row(), step);
    } catch (const Error& error) {
      throw error.with_context(
          "MixWeights (a round is a step; who mixes 0 tensors has ended its training)");
    }
  }

  // Of the mixing with this number.
  collective::MixingRow row_of(int64_t number) const {
    if (options_.mixing == Mixing::kRing)
      return collective::ring_row(group_.rank(), group_.size(), options_.neighbour_weight);
    return collective::random_pair_row(group_.rank(), group_.size(), options_.seed,
                                       static_cast<uint64_t>(number));
  }

  collective::MixingRow row_of_all() const {
    const double weight = 1.0 / group_.size();
    collective::MixingRow row{weight};
    for (int rank = 0; rank < group_.size(); ++rank)
      if (rank != group_.rank()) row.neighbours.push_back({rank, weight});
    return row;
  }

  Communicator& group_;
  const MixWeightsOptions options_;
};

}  // namespace

CallbackPtr MixWeights(Communicator& group, const MixWeightsOptions& options) {
  if (options.every_steps < 1)
    invalid("MixWeights: every_steps must be at least 1, got ", options.every_steps);
  collective::ring_row(group.rank(), group.size(), options.neighbour_weight);  // checks it
  return std::make_shared<MixWeightsCallback>(group, options);
}

}  // namespace cohort::callbacks
