#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>

#include "cohort.h"

// MNIST's digits as they lie in a folder of IDX files, for the examples that learn them.
struct Mnist {
  cohort::data::Dataset train, test;
  int64_t train_images;
};

// The usual split, or 8,000 to 2,000 of the test set where only that one was downloaded.
inline Mnist load_mnist(const std::string& dir) {
  const auto test = cohort::data::images_from_idx(dir, "test");
  const auto is_of_training = [](const auto& entry) {
    return entry.path().filename().string().starts_with("train");
  };
  std::error_code denied;  // the folder is there, since a file of it was read
  const std::filesystem::directory_iterator entries(dir, denied);
  if (denied)
    cohort::fail(cohort::Code::kPermissionDenied, "cannot list ", dir, ": ", denied.message());
  if (std::ranges::any_of(entries, is_of_training)) {
    const auto train = cohort::data::images_from_idx(dir, "train");
    return {train, test, train.cardinality()};
  }
  constexpr int64_t kTrainImages = 8'000;
  if (test.cardinality() <= kTrainImages)
    cohort::invalid(dir, " has no training images, and ", test.cardinality(),
                    " test images are too few to train on ", kTrainImages, " of them");
  return {test.take(kTrainImages), test.skip(kTrainImages), kTrainImages};
}
