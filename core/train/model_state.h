#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/train/model.h"
#include "core/train/stepper.h"

// What a model is made of and keeps. Internal to core/train.
namespace cohort {

struct Model::State {
  nn::Layer network;
  Strategy& strategy;
  const std::weak_ptr<const void> lifetime;  // of the strategy
  const std::string strategy_name;
  Function predict;
  std::unique_ptr<Stepper> stepper;
  bool is_fitting = false;
  int64_t predicted = 0;  // batches
  // A file that is to be loaded when there are variables.
  struct Pending {
    std::string path;
    LoadOptions options;
    bool is_checkpoint = false;
  };
  std::optional<Pending> pending;
};

}  // namespace cohort
