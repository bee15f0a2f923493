// Training's backups: where it stands, as JSON in the metadata of a checkpoint, and going on there.
#include <bit>
#include <map>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/base/comma_separated.h"
#include "core/base/notice.h"
#include "core/train/safetensors.h"
#include "core/train/training.h"

namespace cohort {
namespace {

using Json = nlohmann::json;

constexpr const char* kPositionKey = "training";  // in the metadata of a backup
constexpr int kPositionVersion = 3;               // of a position in the middle of an epoch

std::vector<std::string> metric_names(const Stepper& stepper) {
  std::vector<std::string> names;
  for (size_t i = 0; i < stepper.metrics().size(); ++i)
    names.push_back(stepper.metrics()[i].name() + (stepper.is_weighted(i) ? " (weighted)" : ""));
  return names;
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : comma_separated(names);
}

// Sums are added to those of the same metric only.
void require_metrics(const std::vector<std::string>& saved,
                     const std::vector<std::string>& compiled) {
  if (saved != compiled)
    fail(Code::kFailedPrecondition, "the position is in the middle of an epoch with the metrics ",
         listed(saved), ", and the model is compiled with ", listed(compiled),
         "; compile it with the same, or start from a backup made after an epoch");
}

// What a position in the middle of an epoch holds changes with what epochs are made of.
void require_version(int64_t version) {
  if (version != kPositionVersion)
    fail(Code::kFailedPrecondition, "the position in the middle of an epoch is of version ",
         version, ", and this program continues version ", kPositionVersion,
         "; start from a backup made after an epoch");
}

void require_steps(int64_t done, std::optional<int64_t> steps_per_epoch) {
  if (steps_per_epoch && done > *steps_per_epoch)
    fail(Code::kFailedPrecondition, "the position is after step ", done,
         " of an epoch, and steps_per_epoch is ", *steps_per_epoch,
         "; give at least as many, or start from a backup made after an epoch");
}

// Sums are kept as the bits of their float64s: exact, whatever they are.
uint64_t bits_of(double value) { return std::bit_cast<uint64_t>(value); }

void add_totals(Json& position, const Totals& totals) {
  position["rows"] = totals.rows;
  position["loss"] = bits_of(totals.loss);
  position["metrics"] = Json::array();
  for (const metrics::State& state : totals.metrics) {
    Json& sums = position["metrics"].emplace_back(Json::array());
    for (const double value : state) sums.push_back(bits_of(value));
  }
}

// How many epochs, steps or tests are done. No training has more.
int64_t count_in(const Json& position, const char* what) {
  constexpr int64_t kMost = int64_t{1} << 53;
  const Json& count = position.at(what);
  if (!count.is_number_integer() || count < 0 || count > kMost)
    fail(Code::kDataLoss, "the position of training is corrupt: \"", what, "\" is ", count.dump());
  return count.get<int64_t>();
}

Totals totals_in(const Json& position, size_t num_metrics) {
  Totals totals;
  totals.rows = position.at("rows").get<int64_t>();
  totals.loss = std::bit_cast<double>(position.at("loss").get<uint64_t>());
  for (const auto& sums : position.at("metrics").get<std::vector<std::vector<uint64_t>>>()) {
    metrics::State& state = totals.metrics.emplace_back();
    for (const uint64_t bits : sums) state.push_back(std::bit_cast<double>(bits));
  }
  if (totals.metrics.size() != num_metrics)
    fail(Code::kDataLoss, "the position of training has the sums of ", totals.metrics.size(),
         " metrics, and names ", num_metrics);
  return totals;
}

// Those that no other worker trains.
Variables of_this_worker(Variables variables) {
  std::erase_if(variables, [](const auto& each) { return !is_of_each_worker(*each); });
  return variables;
}

std::string workers_in_words(size_t count) {
  return str(count, count == 1 ? " worker" : " workers");
}

// What becomes of a position whose places in the data are those of another number of workers:
// `begins_anew` is what does.
void tell_of_other_workers(const std::string& source, size_t saved, const Workers& workers,
                           std::string_view begins_anew) {
  if (!workers.is_chief()) return;
  print_notice(str("fit: ", source, " has the places in the data of ", workers_in_words(saved),
                   ", and training goes on with ",
                   workers_in_words(static_cast<size_t>(workers.size())), ": ", begins_anew, '\n'));
}

}  // namespace

std::string Training::save_position() const {
  const bool between_epochs = epoch_ended_.has_value() || step_ == 0;
  Json position = {
      {"epoch", epoch_ + (epoch_ended_ ? 1 : 0)}, {"step", 0}, {"tested", stepper_.tested()}};
  if (!between_epochs) {
    position["step"] = step_;
    position["version"] = kPositionVersion;
    position["seconds"] = seconds();
    position["metric_names"] = metric_names(stepper_);
    add_totals(position, totals_);
  }
  if (resume_)
    fail(Code::kFailedPrecondition,
         "backup: the position that was restored still waits for its epoch to begin");
  if (!between_epochs || (options_.steps_per_epoch && feed_.begun()))
    position["data"] = model_.strategy().workers().exchange("places in the data", feed_.save());
  return position.dump();
}

Training::Position Training::read_position(const std::string& text,
                                           const std::string& source) const {
  try {
    const Json json = Json::parse(text);
    Position position;
    position.epoch = count_in(json, "epoch");
    position.step = count_in(json, "step");
    position.tested = json.contains("tested") ? count_in(json, "tested") : 0;
    add_place(position, json.value("data", std::vector<std::string>()), source);
    if (position.step > 0) {
      require_version(json.value("version", int64_t{1}));
      require_steps(position.step, options_.steps_per_epoch);
      const auto names = metric_names(stepper_);
      require_metrics(json.at("metric_names").get<std::vector<std::string>>(), names);
      position.seconds = json.at("seconds").get<double>();
      position.totals = totals_in(json, names.size());
    }
    return position;
  } catch (const Json::exception& error) {
    fail(Code::kDataLoss, source, ": the position of training is corrupt: ", error.what());
  } catch (const Error& error) {
    throw error.with_context(source);
  }
}

void Training::add_place(Position& position, const std::vector<std::string>& places,
                         const std::string& source) const {
  // Where each epoch is a pass, the next one does not depend on where the last one ended.
  if (places.empty() || (position.step == 0 && !options_.steps_per_epoch)) return;
  const Workers& workers = model_.strategy().workers();
  if (static_cast<int>(places.size()) == workers.size()) {
    const bool is_alone = places.size() == 1;  // whatever the rank of who acts on its own
    position.place = Place{places[is_alone ? 0 : static_cast<size_t>(workers.rank())], source};
  } else if (options_.steps_per_epoch) {
    tell_of_other_workers(source, places.size(), workers, "a new pass over the data begins");
  } else {
    tell_of_other_workers(source, places.size(), workers,
                          str("epoch ", position.epoch + 1, ", of which they had done ",
                              position.step, position.step == 1 ? " step" : " steps",
                              ", begins anew with the weights that these have given"));
    position.step = 0;
  }
}

void Training::go_on_from(Position position) {
  epoch_ = position.epoch;
  step_ = position.step;
  seconds_before_ = position.seconds;
  totals_ = std::move(position.totals);
  resume_ = std::move(position.place);
  has_trained_ = true;
  stepper_.find_step();
  stepper_.continue_tests_at(position.tested);
}

template <typename F>
void Training::for_each_state(const F& f) const {
  std::map<std::string, int> count;
  for (const CallbackPtr& callback : callbacks_) {
    const std::string name = callback->state_name();
    if (!name.empty()) f(str("callback ", name, " #", ++count[name]), *callback);
  }
}

Snapshot Training::backup() const {
  Tensors states;
  for_each_state([&](const std::string& owner, const Callback& callback) {
    for (const auto& [name, tensor] : callback.state()) states[str(owner, ": ", name)] = tensor;
  });
  return Snapshot(model_.checkpoint_variables(), {{kPositionKey, save_position()}},
                  model_.strategy().workers(), states);
}

bool Training::are_ahead_of(const std::string& path) const {
  if (!model_.strategy().input_context().independent || total_steps() == 0) return false;
  const auto& iterations = *model_.optimizer().iterations();
  const Tensors saved = read_safetensors(path).tensors;
  const auto found = saved.find(iterations.name());
  const bool is_known = found != saved.end() && found->second.spec() == iterations.spec();
  const int64_t updates = is_known ? found->second.values<int64_t>()[0] : 0;
  if (total_steps() < updates) return false;
  print_notice(str("fit: the variables that workers share stay as they are, after ", total_steps(),
                   " updates by all workers; those of ", path, " are after ", updates, '\n'));
  return true;
}

void Training::restore(const std::string& path) {
  const bool are_ahead = are_ahead_of(path);
  Position position;
  const auto check = [&](const Safetensors& rest) {
    const auto text = rest.metadata.find(kPositionKey);
    if (text == rest.metadata.end())
      fail(Code::kDataLoss, path, " is a checkpoint but not a backup");
    position = read_position(text->second, path);
    restore_callbacks(rest.tensors, path);
  };
  load_variables(path,
                 are_ahead ? of_this_worker(model_.variables()) : model_.checkpoint_variables(),
                 {.ignore_unexpected = are_ahead, .check = check}, model_.strategy().workers());
  go_on_from(std::move(position));
}

void Training::restore_callbacks(const Tensors& states, const std::string& source) const {
  for_each_state([&](const std::string& owner, Callback& callback) {
    const std::string prefix = owner + ": ";
    CallbackState state;
    for (const auto& [name, tensor] : states)
      if (name.starts_with(prefix)) state[name.substr(prefix.size())] = tensor;
    try {
      if (!state.empty()) callback.restore(state);
    } catch (const Error& error) {
      throw error.with_context(str(source, ": ", owner));
    }
  });
}

}  // namespace cohort
