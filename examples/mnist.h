#pragma once

#include <string>

#include "cohort.h"

// MNIST's digits as they lie in a folder of IDX files, for the examples that learn them.
struct Mnist {
  cohort::data::Dataset train, test;
  int64_t train_images;
};

// The usual split, or 8,000 to 2,000 of the test set where only that one was downloaded.
inline Mnist load_mnist(const std::string& dir) {
  const auto test = cohort::data::images_from_idx(dir, "test");
  try {
    const auto train = cohort::data::images_from_idx(dir, "train");
    return {train, test, train.cardinality()};
  } catch (const cohort::Error& error) {
    if (error.code() != cohort::Code::kNotFound) throw;
  }
  constexpr int64_t kTrainImages = 8'000;
  return {test.take(kTrainImages), test.skip(kTrainImages), kTrainImages};
}
