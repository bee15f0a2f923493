// Model's weights and checkpoints in files.
#include <string>
#include <utility>

#include "core/train/checkpoint.h"
#include "core/train/model.h"
#include "core/train/model_state.h"

namespace cohort {

void Model::save_weights(const std::string& path) const {
  const Variables all = built_variables();
  require_loaded();
  Workers& workers = strategy().workers();
  if (state_->stepper) state_->stepper->attach();
  save_variables(path, all, {}, workers);
}

Loaded Model::load_weights(const std::string& path, const LoadOptions& options) {
  if (!network().built()) {
    Metadata metadata = load_metadata(path, strategy().workers());
    state_->pending = {path, options, false};
    return {.metadata = std::move(metadata)};
  }
  Loaded loaded = load_variables(path, built_variables(), options, strategy().workers());
  state_->pending.reset();
  return loaded;
}

void Model::save_checkpoint(const std::string& path, const Metadata& metadata) const {
  const Variables all = checkpoint_variables();
  require_loaded();
  save_variables(path, all, metadata, strategy().workers());
}

Loaded Model::load_checkpoint(const std::string& path, const LoadOptions& options) {
  if (!network().built() || !state_->stepper) {
    Metadata metadata = load_metadata(path, strategy().workers());
    state_->pending = {path, options, true};
    return {.metadata = std::move(metadata)};
  }
  Loaded loaded = load_variables(path, checkpoint_variables(), options, strategy().workers());
  state_->pending.reset();
  return loaded;
}

void Model::require_loaded() const {
  if (!state_->pending) return;
  const std::string to_load = str("the model is to load ", state_->pending->path);
  if (!network().built())
    fail(Code::kFailedPrecondition, to_load,
         ", which cannot be done in the middle of a function: call build() first");
  if (!state_->stepper)
    fail(Code::kFailedPrecondition, to_load,
         " with the state of an optimizer: call compile() first, or load_weights() with "
         "ignore_unexpected for the weights alone");
  fail(Code::kFailedPrecondition, to_load, ", which has failed: load it again, or another file");
}

Variables Model::built_variables() const {
  if (!network().built()) {
    fail(Code::kFailedPrecondition, "the model has no variables yet: call build() or fit() first");
  }
  return variables();
}

Variables Model::checkpoint_variables() const {
  const auto scope = enter_home();
  Variables all = built_variables();
  optimizer().build(trainable_variables());
  for (auto& variable : optimizer().variables()) all.push_back(std::move(variable));
  return all;
}

void Model::load_pending() {
  const auto pending = state_->pending;  // which ends once it is loaded
  if (!pending || !network().built() || (pending->is_checkpoint && !state_->stepper)) return;
  if (pending->is_checkpoint)
    load_checkpoint(pending->path, pending->options);
  else
    load_weights(pending->path, pending->options);
}

}  // namespace cohort
