#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "core/train/model.h"

namespace cohort {

struct EvaluateCheckpointsOptions {
  std::chrono::milliseconds poll = std::chrono::milliseconds(500);  // between looks at the folder
  // Ends after so many evaluations, or when there was no new checkpoint for so long; none: neither.
  std::optional<int64_t> max_evaluations = {};
  std::optional<std::chrono::milliseconds> idle_timeout = {};
  std::optional<int64_t> steps = {};  // as EvaluateOptions::steps
  // Where to write the results for TensorBoard, tags "evaluation_loss" and so on; empty: nowhere.
  std::string log_directory = {};
  // Called with the results of each.
  std::function<void(const std::string& path, int64_t step, const Logs& logs)> evaluated = {};
};

// What a task evaluator does beside training (Keras' SidecarEvaluator): loads the weights of every
// checkpoint (*.safetensors) that appears in `folder`, oldest first, and evaluates the model over
// `dataset`. Returns when training has ended, which launchers tell their evaluator by SIGTERM,
// after what is there by then; or as the options say. Lines tell while there is none yet. A
// checkpoint that is removed before its turn is passed over, and one that is replaced is evaluated
// as it is then, once. One that cannot be read, as where it is still being copied there, is passed
// over with a warning, until it is written again. The result has an entry for each one evaluated,
// with the optimizer's iterations (or, for weights alone, a count of them) in the place of epochs.
// kInvalidArgument for a folder "" and for a checkpoint that does not fit the model.
History evaluate_checkpoints(const std::string& folder, Model& model, const data::Dataset& dataset,
                             const EvaluateCheckpointsOptions& options = {});

}  // namespace cohort
