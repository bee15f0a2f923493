#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/train/model.h"

namespace cohort {

// What an output of a network is trained and measured by, as compile() was told.
struct Objective {
  size_t output = 0;      // which of the network's
  std::string name = {};  // the output's; empty where it is the only one
  std::optional<losses::Loss> loss = {};
  double loss_weight = 1;
  std::vector<metrics::Metric> metrics = {}, weighted_metrics = {};
};

// One for each output that has a loss or a metric, in the order of the outputs. kInvalidArgument,
// with the outputs that there are, where the options do not fit these.
std::vector<Objective> objectives_of(const CompileOptions& options,
                                     const std::vector<std::string>& outputs);

// The names of a batch's tensors for an output: "label", "weight", and of several outputs
// "label/NAME", "weight/NAME".
std::string label_of(const std::string& output);
std::string weight_of(const std::string& output);
// The name of a result of an output: NAME_RESULT of several.
std::string result_of(const std::string& output, const std::string& result);
// Whether a tensor of that name is no input of a network.
bool is_target(std::string_view name);
// The outputs of a model, for messages.
std::string in_words(const std::vector<std::string>& outputs);

}  // namespace cohort
